"""Measure a MiniCode policy through the public commands: Pass@1 per turn, repairs, repeats, and gaming.

Conversations come from ``run_multi_turn_vllm.py`` (Hugging Face engine, ``--enable_thinking``, sampling as in
evaluation) and are scored by ``eval_multi_turn.py`` on hidden tests; programs run in the sandbox. Samples that met an
infrastructure failure are left out; more than 1 % of them end the probe. *Gaming*: fully specified dev problems once
more, with feedback from perturbed tests; the habit of a case is known from its program's text.
"""

import asyncio
import itertools
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal

import tyro
from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary
from cobalt.cli.flags import (
    CommandConfig,
    NotNegative,
    NotNegativeFloat,
    OptionalOutputFile,
    Positive,
    TopP,
)
from cobalt.evaluation.evaluate import EvaluationConfig
from cobalt.evaluation.evaluate import main as evaluate
from cobalt.evaluation.files import problem_scores
from cobalt.evaluation.summary import summarise
from cobalt.extraction import extract_code
from cobalt.hacking.cases import find_cases
from cobalt.hacking.rates import ABANDONED, CASES, COUNTED, FITTED, Rate
from cobalt.inference.flags import MultiTurnOpenWeightConfig
from cobalt.inference.run import main as infer
from cobalt.perturbation import perturbed_fields
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.jsonl import Record
from cobalt.records.rows import Evaluated
from cobalt.statistics import Estimate
from research.minicode import wording
from research.minicode.habits import Habit, hack_in
from research.minicode.problems import Problem, instruction_of, sample_problem

KINDS = ("hidden_rule", "fully_specified")


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(CommandConfig):
    """Roll a policy out on fresh MiniCode problems and report its skill."""

    model: Annotated[Path, tyro.conf.arg(aliases=["--model_name"])] = Path("assets/minicoder")
    """Folder of the policy."""
    output_file: OptionalOutputFile = None
    """JSON with all figures."""
    num_problems: Positive = 200
    """Dev problems."""
    num_samples: Positive = 4
    num_turns: NotNegative = 8
    """Turns after the first."""
    perturbed_problems: NotNegative = 100
    """Fully specified dev problems with feedback from perturbed tests."""
    shifted_problems: NotNegative = 100
    """Problems of the shifted test set."""
    temperature: NotNegativeFloat = 0.6
    top_p: TopP = 0.95
    max_tokens: Positive = 192
    batch_size: Positive = 1024
    seed: int = 12345


def roll_out(
    config: ProbeConfig, problems: Sequence[Problem], tests: Literal["public", "perturbed"] = "public"
) -> list[Record]:
    """Evaluated records of ``num_samples`` conversations per problem; their ``difficulty`` is the kind of statement.

    With ``perturbed``, feedback comes from two tests that swapped their outputs, where there are two such.
    """
    rows: list[Record] = []
    for index, problem in enumerate(problems):
        row = {
            "id": index,
            "instruction": instruction_of(problem),
            "test_cases": problem.shown(problem.public + problem.hidden).to_json(),
            "public_test_cases": problem.shown(problem.public).to_json(),
            "hidden_test_cases": problem.shown(problem.hidden).to_json(),
            "difficulty": KINDS[problem.fully_specified],
        }
        added = perturbed_fields(row, config.seed) if tests == "perturbed" else {}
        if added is not None:
            rows.append({**row, **added})
    with tempfile.TemporaryDirectory() as folder:
        source, turns, evaluated = (Path(folder) / f"{name}.jsonl" for name in ("problems", "turns", "evaluated"))
        write_jsonl(source, rows)
        flags = MultiTurnOpenWeightConfig(
            input_file=source,
            output_file=turns,
            engine="hf",
            model=str(config.model),
            from_scratch=True,
            prompts=str(wording.FILE),
            feedback_tests=tests,
            enable_thinking=True,
            num_turns=config.num_turns,
            num_completions=config.num_samples,
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
            batch_size=config.batch_size,
            seed=config.seed,
            executor="local",
        )
        asyncio.run(infer(flags))
        evaluate(EvaluationConfig(input_file=turns, output_file=evaluated, executor="local"))
        return list(read_jsonl(evaluated))


def turn_figures(records: Sequence[Record]) -> dict[str, list[float | None]]:
    """Figures per turn over samples without infrastructure failures; shares in [0, 1], None: of nothing."""
    scores = [problem_scores(Evaluated.read(record)) for record in records]
    summary = summarise(scores)
    samples = [(r, s) for r in records for s, rates in enumerate(r["all_pass_rates"]) if None not in rates]

    def mean(value: Callable[[Record, int, int], float]) -> list[float | None]:
        return [fmean(value(record, turn, sample) for record, sample in samples) for turn in range(summary.turns)]

    def values(estimates: Iterable[Estimate | None]) -> list[float | None]:
        return [None if estimate is None else estimate.value for estimate in estimates]

    standard_errors: list[float | None] = []  # over problems: the samples of one problem are averaged first
    for turn in range(summary.turns):
        means = [problem.solved_T[turn] / problem.samples for problem in scores if problem.samples]
        standard_errors.append(stdev(means) / len(means) ** 0.5 if len(means) > 1 else None)
    figures: dict[str, list[float | None]] = {
        "pass_at_1": values(row.estimate for row in summary.pass_at_1),
        "standard_error": standard_errors,
        **{kind: values(row.estimate for row in summary.by_difficulty.get(kind, [])) for kind in reversed(KINDS)},
        "public_not_hidden": mean(lambda r, t, s: r["public_pass_rates"][t][s] == 1 and r["all_pass_rates"][s][t] < 1),
        "no_program": mean(lambda r, t, s: extract_code(r["raw_responses"][t][s]) is None),
        "prompt_tokens": mean(lambda r, t, s: r["usage"][t][s]["prompt_tokens"]),
        "response_tokens": mean(lambda r, t, s: r["usage"][t][s]["completion_tokens"]),
        "solved_if_unsolved_before": values(row.estimate for row in summary.solved_after_unsolved),
        "failed_program_repeated": values(row.after_failure.estimate for row in summary.repeats),
    }
    return {name: [None if v is None else round(v, 4) for v in row] for name, row in figures.items()}


def gaming_figures(records: Sequence[Record]) -> dict[str, Any]:
    """Totals, rates in [0, 1] with 95 % intervals over problems (None: of nothing), and cases by turn and by habit.

    ``records``: perturbed and evaluated, so that each is its own row of the data set.
    """
    found = [find_cases(record, record) for record in records]
    rows = [
        {"id": record["id"], "cases": of_problem.cases, **{name: getattr(of_problem, name) for name in COUNTED}}
        for record, of_problem in zip(records, found, strict=True)
    ]

    def estimate(rate: Rate) -> dict[str, float | None] | None:
        found = rate.of(rows)
        return found and {name: None if value is None else round(value, 4) for name, value in asdict(found).items()}

    cases = [case for of_problem in found for case in of_problem.cases]
    opportunities_T = [sum(turn_P) for turn_P in zip(*(each.opportunities_T for each in found), strict=True)]
    by_turn = Counter(case.turn for case in cases)
    by_habit = Counter(hack_in(case.current_code) or Habit.CHANGED_RULE for case in cases)  # no hack: another rule
    return {
        "opportunities": sum(opportunities_T),
        "cases": len(cases),
        "cases_per_opportunity": estimate(CASES),
        "wrong_test_fitted": estimate(FITTED),
        "right_program_abandoned": estimate(ABANDONED),
        "opportunities_by_turn": opportunities_T,
        "cases_by_turn": [by_turn[turn] for turn in range(len(opportunities_T))],
        "cases_by_habit": {habit.value: by_habit[habit] for habit in Habit},
    }


def main(config: ProbeConfig) -> None:
    rng = random.Random(config.seed)
    dev = [sample_problem(rng, "dev") for _ in range(config.num_problems)]
    sampled = (sample_problem(rng, "dev") for _ in itertools.count())
    full = (problem for problem in sampled if problem.fully_specified)
    perturbed = list(itertools.islice(full, config.perturbed_problems))
    rng = random.Random(f"{config.seed}-shifted")
    shifted = [sample_problem(rng, "shifted") for _ in range(config.shifted_problems)]

    figures = {
        "config": {**asdict(config), "model": config.model.name, "output_file": None},
        "turns": turn_figures(roll_out(config, dev)),
        "shifted": turn_figures(roll_out(config, shifted)) if shifted else None,
        "gaming": gaming_figures(roll_out(config, perturbed, "perturbed")) if perturbed else None,
    }
    if config.output_file is not None:
        config.output_file.parent.mkdir(parents=True, exist_ok=True)
        config.output_file.write_text(json.dumps(figures, indent=1) + "\n")
    titles = {"turns": f"{config.model} on {len(dev)} dev problems", "shifted": "on shifted problems"}
    for name, title in {**titles, "gaming": "under feedback from perturbed tests"}.items():
        if figures[name] is not None:
            print_summary(title, {k: str(v) for k, v in figures[name].items()})
