"""What a bandit set is made of: counts for the manifest, a table for the eye, a histogram for the picture."""

from collections import Counter
from typing import Any

import numpy as np

from cobalt.bandit.builder import Context, ProblemPlan
from cobalt.bandit.evaluated import EvaluatedProblem
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

    def add_problem(self, problem: EvaluatedProblem, plan: ProblemPlan) -> None:
        """Count one problem, kept or dropped, and its trajectories."""
        fate = f"dropped: {plan.dropped}" if plan.dropped else "kept"
        self._problems[f"{fate} (perturbed)" if problem.perturbed else fate] += 1
        size = len(problem.trajectories) + problem.infra_dropped
        self._sizes[size] += 1
        self._trajectories["read"] += size
        self._trajectories["dropped: infra error"] += problem.infra_dropped
        self._trajectories["with contexts"] += sum(contexts_C[0].num_programs > 0 for contexts_C in plan.contexts_NC)

    def add_context(self, context: Context, tokens: int) -> None:
        """Count one context of ``tokens`` prompt tokens."""
        kind = "perturbed" if context.problem.perturbed else "clean"
        self._tokens.setdefault((kind, context.num_programs), []).append(tokens)

    @property
    def _tokens_by_name(self) -> dict[str, list[int]]:
        return {f"{kind}, turn {turn}": tokens for (kind, turn), tokens in sorted(self._tokens.items())}

    def counts(self) -> dict[str, Any]:
        """Everything as nested counts, JSON-ready."""
        return {
            "problems_read": self._problems.total(),
            "problems": dict(sorted(self._problems.items())),
            "trajectories_per_problem": {str(size): count for size, count in sorted(self._sizes.items())},
            "trajectories": dict(self._trajectories),
            "contexts": {name: len(tokens) for name, tokens in self._tokens_by_name.items()},
            "invalid_lines_skipped": self.invalid_lines,
            "records_written": self.records_written,
        }

    def summary(self) -> dict[str, Any]:
        """The short table: problems, trajectories, records."""
        sizes = sorted(self._sizes)
        return {
            **{f"problems {name}": count for name, count in sorted(self._problems.items())},
            "trajectories per problem": f"{sizes[0]} to {sizes[-1]}" if sizes else "none",
            **{f"trajectories {name}": count for name, count in self._trajectories.items()},
            "invalid lines skipped": self.invalid_lines,
            "records written": self.records_written,
        }

    def table(self) -> dict[str, Any]:
        """The full table: with contexts and prompt tokens by turn."""
        rows = self.summary()
        for name, tokens in self._tokens_by_name.items():
            quantiles = " / ".join(f"{value:.0f}" for value in np.percentile(tokens, QUANTILES))
            rows[f"contexts {name}"] = f"{len(tokens):,} (tokens p50 / p90 / max: {quantiles})"
        return rows

    @styled
    def picture(self, key: str) -> Picture:
        """Histogram of prompt tokens by turn."""
        figure, tokens_of = new_figure(), self._tokens_by_name
        axes = figure.add_subplot()
        longest = max((max(tokens) for tokens in tokens_of.values()), default=1)
        bins = np.linspace(0, longest + 1, HISTOGRAM_BINS + 1).tolist()
        for tokens, line in zip(tokens_of.values(), series_of(list(tokens_of)).values(), strict=True):
            label = f"{line.label} ({len(tokens):,})"
            axes.hist(tokens, bins=bins, histtype="step", color=line.colour, linestyle=line.dash, label=label)
        axes.set(xlabel="prompt tokens", ylabel="contexts")
        if tokens_of:
            figure.legend(loc="outside upper center", ncols=2)
        return finished(figure, key, "Prompt tokens by turn")
