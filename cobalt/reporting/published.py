"""The paper's published figures (arXiv 2602.03806, from its public summary), and ours beside them."""

from dataclasses import dataclass

from cobalt.reporting.material import Material, mean
from cobalt.reporting.runs import paired
from cobalt.statistics import hierarchical_mean
from cobalt.tables import Cell, Table

SOURCE = "Chen et al. 2026, arXiv 2602.03806"
MARK = "†"
QUANTITIES = {
    "pass1": "Pass@1 (%); ours: last turn",
    "gain": "gain over the base (points); ours: last turn",
    "gpu_seconds_per_example": "training time (GPU-s per example)",
}
SETS = {"LiveCodeBench": "shifted", "TACO-Dev": "clean"}
"""Our set of problems that stands where the paper has this one."""


@dataclass(frozen=True)
class Published:
    """One published number, for one of ``QUANTITIES``; ``test_set`` is one of ``SETS``, or None for costs."""

    quantity: str
    setting: str
    test_set: str | None
    value: float


# Settings as the sources name them: gains and base models from the abstract, the rest from the public summary.
FIGURES = (
    Published("pass1", "8B-COBALT", "LiveCodeBench", 31.7),
    Published("gain", "R1-Distill 8B, up to", "LiveCodeBench", 9.0),
    Published("pass1", "8B-FT-COBALT (fine-tuned first)", "LiveCodeBench", 38.5),
    Published("gain", "Qwen3 8B, up to", "LiveCodeBench", 6.2),
    Published("pass1", "R1-Distill, COBALT-FT, perturbation-augmented", "TACO-Dev", 46.4),
    Published("pass1", "Qwen3, COBALT-FT, perturbation-augmented", "TACO-Dev", 56.9),
    Published("gpu_seconds_per_example", "COBALT, about 16.9 s on 4 GPUs", None, 67.6),
    Published("gpu_seconds_per_example", "VeRPO-MT, about 26.7 s on 8 GPUs", None, 213.6),
)


def published_table(material: Material) -> Table:
    """The paper's figures beside ours; models, data and scale differ."""
    runs = dict.fromkeys(name for group in (*material.scores.values(), material.logs) for name in group)
    rows: list[list[Cell]] = [
        [
            QUANTITIES[figure.quantity],
            f"{figure.setting} {MARK}",
            figure.test_set and f"{figure.test_set} {MARK}",
            figure.value,
            *(_ours(material, figure, name) for name in runs),
        ]
        for figure in FIGURES
    ]
    return Table(
        "published",
        "The paper's published figures beside ours",
        f"{MARK} Published: {SOURCE}; not measured here. Other models, data and hardware than ours: compare directions "
        "and sizes of differences, not levels. Beside LiveCodeBench stands our shifted test set, beside TACO-Dev the "
        "other one. The public summary does not say at which turn its figures were measured, nor under which feedback "
        "those on TACO-Dev.",
        (
            "quantity",
            f"published setting {MARK}",
            f"test set {MARK}",
            f"published {MARK}",
            *(f"ours: {name}" for name in runs),
        ),
        rows,
    )


def _ours(material: Material, figure: Published, name: str) -> Cell:
    """Our value of a published quantity, where this run has one."""
    if figure.test_set is None:
        logs = material.logs.get(name)
        return mean([log.gpu_seconds_per_example for log in logs]) if logs else None
    scores = material.scores[SETS[figure.test_set]]
    if name not in scores:
        return None
    if figure.quantity == "pass1":
        return scores[name].pass1_T[-1]
    if name == material.baseline or material.baseline not in scores:
        return None
    ours_SPT, base_SPT = paired(scores[name], scores[material.baseline])
    gain = hierarchical_mean(ours_SPT[:, :, -1], base_SPT[:, :, -1])
    return gain and gain.estimate
