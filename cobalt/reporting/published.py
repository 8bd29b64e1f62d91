"""The paper's published figures (arXiv 2602.03806, from its public summary), and ours beside them."""

from dataclasses import dataclass

from cobalt.reporting.material import Material, mean, mean_of
from cobalt.reporting.score_tables import paired
from cobalt.tables import Cell, Table

SOURCE = "Chen et al. 2026, arXiv 2602.03806"
MARK = "†"
QUANTITIES = {
    "pass1": "Pass@1, last turn, clean tests (%)",
    "gain": "gain over the base, last turn (points)",
    "seconds_per_example": "training time (s per example)",
}


@dataclass(frozen=True)
class Published:
    """One published number, for one of ``QUANTITIES``."""

    quantity: str
    setting: str
    value: float


# Names of models and settings as the public summary has them; which model is whose follows from the order of its lists.
FIGURES = (
    Published("pass1", "R1-Distill 8B: 8B-COBALT, LiveCodeBench", 31.7),
    Published("gain", "R1-Distill 8B: 8B-COBALT over the base model, LiveCodeBench, up to", 9.0),
    Published("pass1", "Qwen3 8B: 8B-FT-COBALT, LiveCodeBench", 38.5),
    Published("gain", "Qwen3 8B: 8B-FT-COBALT over the base model, LiveCodeBench, up to", 6.2),
    Published("pass1", "R1-Distill 8B: COBALT-FT, perturbation-augmented, TACO-Dev", 46.4),
    Published("pass1", "Qwen3 8B: COBALT-FT, perturbation-augmented, TACO-Dev", 56.9),
    Published("seconds_per_example", "COBALT, 4 GPUs, about", 16.9),
    Published("seconds_per_example", "VeRPO-MT, 8 GPUs, about", 26.7),
)


def published_table(material: Material) -> Table:
    """The paper's figures beside ours; models, data and scale differ."""
    runs = dict.fromkeys(name for group in (*material.scores.values(), material.logs) for name in group)
    rows: list[list[Cell]] = [
        [
            QUANTITIES[figure.quantity],
            f"{figure.setting} {MARK}",
            figure.value,
            *(_ours(material, figure.quantity, name) for name in runs),
        ]
        for figure in FIGURES
    ]
    return Table(
        "published",
        "The paper's published figures beside ours",
        f"{MARK} Published: {SOURCE}; not measured here. Other models, data and hardware than ours: compare directions "
        "and sizes of differences, not levels. The public summary does not say under which feedback its TACO-Dev "
        "figures were measured.",
        ("quantity", f"published setting {MARK}", f"published {MARK}", *(f"ours: {name}" for name in runs)),
        rows,
    )


def _ours(material: Material, quantity: str, name: str) -> Cell:
    """Our value of a published quantity, where this run has one."""
    clean = material.scores["clean"]
    if quantity == "pass1" and name in clean:
        return mean_of(clean[name].pass1_PT[:, -1])
    if quantity == "gain" and name != material.baseline and {name, material.baseline} <= clean.keys():
        before_PT, after_PT = paired(clean[material.baseline], clean[name])
        return mean_of(after_PT[:, -1] - before_PT[:, -1])
    if quantity == "seconds_per_example" and name in material.logs:
        return mean([log.seconds_per_example for log in material.logs[name]])
    return None
