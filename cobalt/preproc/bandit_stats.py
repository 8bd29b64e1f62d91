"""What a bandit set is made of: counts for the manifest, a table for the eye, a histogram for the picture."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from cobalt.bandit import Context, EvaluatedProblem, ProblemPlan
from cobalt.figures import Picture, finished, new_figure, series_of, styled

QUANTILES = (50, 90, 100)
HISTOGRAM_BINS = 60


class SetStats:
    """Collects while the set is built; contexts are those before the mix with perturbed ones."""

    def __init__(self) -> None:
        self.invalid_lines = 0
        self.records_written = 0
        self._problems: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._trajectories: Counter[str] = Counter()
        self._tokens: dict[tuple[str, int], list[int]] = {}

    def add_problem(self, problem: EvaluatedProblem, plan: ProblemPlan, perturbed: bool) -> None:
        """Count one problem, kept or dropped, and its trajectories."""
        fate = f"dropped: {plan.dropped}" if plan.dropped else "kept"
        self._problems[f"{fate} (perturbed)" if perturbed else fate] += 1
        size = len(problem.trajectories) + problem.infra_dropped
        self._sizes[size] += 1
        self._trajectories["read"] += size
        self._trajectories["dropped: infra error"] += problem.infra_dropped
        self._trajectories["with contexts"] += len(plan.contexts_NC)

    def add_context(self, context: Context, tokens: int, perturbed: bool) -> None:
        """Count one context of ``tokens`` prompt tokens."""
        kind = "perturbed" if perturbed else "clean"
        self._tokens.setdefault((kind, context.num_programs), []).append(tokens)

    def counts(self) -> dict[str, Any]:
        """Everything as nested counts, JSON-ready."""
        return {
            "problems_read": self._problems.total(),
            "problems": dict(sorted(self._problems.items())),
            "trajectories_per_problem": {str(size): count for size, count in sorted(self._sizes.items())},
            "trajectories": dict(self._trajectories),
            "contexts": {_name(*key): len(tokens) for key, tokens in sorted(self._tokens.items())},
            "invalid_lines_skipped": self.invalid_lines,
            "records_written": self.records_written,
        }

    def summary(self) -> Mapping[str, Any]:
        """The short table: problems, trajectories, records."""
        sizes = sorted(self._sizes)
        return {
            **{f"problems {name}": count for name, count in sorted(self._problems.items())},
            "trajectories per problem": f"{sizes[0]} to {sizes[-1]}" if sizes else "none",
            **{f"trajectories {name}": count for name, count in self._trajectories.items()},
            "invalid lines skipped": self.invalid_lines,
            "records written": self.records_written,
        }

    def table(self) -> Mapping[str, Any]:
        """The full table: with contexts and prompt tokens by turn."""
        rows = dict(self.summary())
        for key, tokens in sorted(self._tokens.items()):
            quantiles = " / ".join(f"{value:.0f}" for value in np.percentile(tokens, QUANTILES))
            rows[f"contexts {_name(*key)}"] = f"{len(tokens):,} (tokens p50 / p90 / max: {quantiles})"
        return rows

    @styled()
    def picture(self, key: str) -> Picture:
        """Histogram of prompt tokens by turn."""
        figure = new_figure()
        axes = figure.add_subplot()
        longest = max((max(tokens) for tokens in self._tokens.values()), default=1)
        bins = np.linspace(0, longest + 1, HISTOGRAM_BINS + 1).tolist()
        names = [_name(*contexts) for contexts in sorted(self._tokens)]
        for (_, tokens), line in zip(sorted(self._tokens.items()), series_of(names).values(), strict=True):
            label = f"{line.label} ({len(tokens):,})"
            axes.hist(tokens, bins=bins, histtype="step", color=line.colour, linestyle=line.dash, label=label)
        axes.set(xlabel="prompt tokens", ylabel="contexts")
        if self._tokens:
            figure.legend(loc="outside upper center", ncols=2)
        return finished(figure, key, "Prompt tokens by turn")


def _name(kind: str, num_programs: int) -> str:
    return f"{kind}, turn {num_programs}"
