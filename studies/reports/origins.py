"""Where the numbers of a report come from: model, sampling, seed and commit, as the manifests of its files say."""

from collections.abc import Sequence

from cobalt.tables import Table
from studies.reports.runs import KINDS, NamedRun


def files_table(runs: Sequence[NamedRun]) -> Table:
    """What was given, and so what could be shown."""
    kinds = [kind for kind in KINDS if any(run.of(kind) for run in runs)]
    rows = [[run.name, *(len(run.sources(kind)) or None for kind in kinds)] for run in runs]
    return Table(
        "files",
        "Files of each run",
        "A run is missing from the tables of kinds that it has no file of. A counts file is as many as it stands for.",
        ("run", *kinds),
        rows,
    )


def origins_table(runs: Sequence[NamedRun]) -> Table:
    """One row per file. What no manifest says is left empty."""
    rows = [
        [
            run.name,
            kind,
            source.file,
            source.model,
            ", ".join(f"{name} {value}" for name, value in source.sampling.items()) if source.sampling else None,
            source.seed,
            source.checker,
            source.commit,
        ]
        for run in runs
        for kind in run.files
        for source in run.sources(kind)
    ]
    return Table(
        "origins",
        "Where the numbers come from",
        "From the manifests of the files, and of those that they were made from.",
        ("run", "kind", "file", "model", "sampling", "seed", "checker", "commit"),
        rows,
    )
