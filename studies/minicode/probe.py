"""Measure a MiniCode policy through the public commands: Pass@1 per turn, repairs, repeats, and look-alike pairs.

Conversations come from ``run_multi_turn_vllm.py`` (Hugging Face engine, ``--enable_thinking``, sampling as in
evaluation) and are scored by ``eval_multi_turn.py`` on hidden tests; programs run in the sandbox. Samples that met an
infrastructure failure are left out; more than 1 % of them end the probe. A conversation goes on after its program has
passed. *Look-alikes*: of the programs that answer a fully specified problem at turn 0, the share that holds the lines
of the operation asked for; per operation, and per pair of an operation and its look-alike (both directions together).
*Gaming*: fully specified dev problems once more, with feedback from perturbed tests. Cases and opportunities are those
of ``studies.hacking.cases``; the habit of a case is known from its program's text.
"""

import asyncio
import itertools
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary
from cobalt.cli.flags import (
    CommandConfig,
    ModelFolder,
    NotNegative,
    OptionalOutputFile,
    Positive,
    Temperature,
    TopP,
)
from cobalt.completion import Sampling, request_seed
from cobalt.evaluation.evaluate import EvaluationConfig
from cobalt.evaluation.evaluate import main as evaluate
from cobalt.evaluation.files import problem_scores
from cobalt.evaluation.summary import summarise
from cobalt.extraction import extract_code
from cobalt.inference.engines import open_local_engine
from cobalt.inference.flags import MultiTurnOpenWeightConfig
from cobalt.inference.run import main as infer
from cobalt.perturbation import perturbed_fields
from cobalt.prompts import first_messages
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.jsonl import Record
from cobalt.records.rows import Evaluated
from cobalt.statistics import Estimate
from studies.hacking.cases import find_cases
from studies.hacking.rates import ABANDONED, CASES, COUNTED, FITTED, Rate, interval
from studies.minicode.habits import Habit, hack_in
from studies.minicode.operations import COMMON, OPERATIONS, Domain, Kind
from studies.minicode.problems import Problem, instruction_of, sample_problem
from studies.minicode.programs import Step, Variant, domain_of, write_program

FINALS: dict[Domain, tuple[Step, Step]] = {
    Domain.NUMBERS: (("sum", None), ("max", None)),
    Domain.TEXT: (("show", None), ("length", None)),
}
FULLY_SPECIFIED, HIDDEN_RULE = "fully_specified", "hidden_rule"


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(CommandConfig):
    """Roll a policy out on fresh MiniCode problems and report its skill."""

    model: ModelFolder = Path("assets/minicoder")
    """Folder of the policy."""
    output_file: OptionalOutputFile = None
    """JSON with all figures."""
    num_problems: Positive = 200
    """Dev problems."""
    num_samples: Positive = 4
    num_turns: NotNegative = 8
    """Turns after the first."""
    look_alike_decisions: NotNegative = 50
    """Fully specified problems, of training compositions, that ask for each operation; turn 0 only."""
    perturbed_problems: NotNegative = 100
    """Fully specified dev problems with feedback from perturbed tests."""
    shifted_problems: NotNegative = 100
    """Problems of the shifted test set."""
    temperature: Temperature = 0.6
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
            "difficulty": FULLY_SPECIFIED if problem.fully_specified else HIDDEN_RULE,
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
        infer(flags)
        evaluate(EvaluationConfig(input_file=turns, output_file=evaluated, executor="local"))
        return list(read_jsonl(evaluated))


def turn_figures(records: Sequence[Record]) -> dict[str, list[float | None]]:
    """Figures per turn over samples without infrastructure failures; shares in [0, 1], None: of nothing."""
    scores = [problem_scores(Evaluated.read(record)) for record in records]
    summary = summarise(scores)
    turns = range(summary.turns)
    samples = [
        (record, sample)
        for record in records
        for sample, rates in enumerate(record["all_pass_rates"])
        if None not in rates
    ]

    def mean(value: Callable[[Record, int, int], float]) -> list[float | None]:
        return [fmean(value(record, turn, sample) for record, sample in samples) for turn in turns]

    def values(estimates: Iterable[Estimate | None]) -> list[float | None]:
        return [None if estimate is None else estimate.value for estimate in estimates]

    def standard_error(turn: int) -> float | None:
        """Over problems: the samples of one problem are averaged first."""
        means = [problem.solved_T[turn] / problem.samples for problem in scores if problem.samples]
        return stdev(means) / len(means) ** 0.5 if len(means) > 1 else None

    figures: dict[str, list[float | None]] = {
        "pass_at_1": values(row.estimate for row in summary.pass_at_1),
        "standard_error": [standard_error(turn) for turn in turns],
        **{
            kind: values(row.estimate for row in summary.by_difficulty.get(kind, []))
            for kind in (FULLY_SPECIFIED, HIDDEN_RULE)
        },
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
        found = interval(rate, rows)
        return found and {name: None if value is None else round(value, 4) for name, value in found.items()}

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


async def first_responses(config: ProbeConfig, problems: Sequence[Problem]) -> list[str]:
    """``config.num_samples`` responses at turn 0 to each problem, problem by problem."""
    sampling = Sampling(config.temperature, config.top_p, config.max_tokens)
    async with open_local_engine(str(config.model), config.batch_size, None) as engine:
        asked = (
            engine.generate(
                first_messages(instruction_of(problem)),
                sampling,
                request_seed(config.seed, f"look-alike {index}", sample, 0),
            )
            for index, problem in enumerate(problems)
            for sample in range(config.num_samples)
        )
        return [completion.text for completion in await asyncio.gather(*asked)]


def step_lines(step: Step, domain: Domain, variant: Variant) -> set[str]:
    """The lines that a step adds to a program of the given structure."""

    def lines(*pipeline: Step) -> set[str]:
        return {line.strip() for line in write_program(pipeline, variant).splitlines()}

    show, other = FINALS[domain]
    if OPERATIONS[step[0]].kind is Kind.FINAL:
        return lines(step) - (lines(show) & lines(other))
    return lines(step, show) - lines(show)


def holds_step(code: str | None, step: Step, domain: Domain) -> bool:
    """Whether a program holds the lines of a step, in any of the structures that the policy knows."""
    lines = {line.strip() for line in (code or "").splitlines()}
    return any(step_lines(step, domain, variant) <= lines for variant in Variant)


def look_alike_problems(rng: random.Random, per_operation: int) -> list[Problem]:
    """Fully specified problems of training compositions, ``per_operation`` that ask for each operation."""
    return [
        sample_problem(rng, "train", with_hidden_tests=False, must_ask_for=name)
        for name in COMMON
        for _ in range(per_operation)
    ]


def look_alike_figures(problems: Sequence[Problem], responses: Sequence[str]) -> dict[str, dict[str, float]]:
    """Per operation, the worst first: decisions, share where it is written, share where its look-alike is."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for problem, response in zip(problems, responses, strict=True):
        code, domain = extract_code(response), domain_of(problem.pipeline)
        for name, constant in problem.pipeline:
            right = holds_step(code, (name, constant), domain)
            wrong = holds_step(code, (OPERATIONS[name].look_alike, constant), domain)
            counts[name][0] += 1
            counts[name][1] += right
            counts[name][2] += wrong and not right
    rows = {n: {"count": c, "right": round(r / c, 3), "look_alike": round(w / c, 3)} for n, (c, r, w) in counts.items()}
    return dict(sorted(rows.items(), key=lambda item: item[1]["right"]))


def pair_figures(per_operation: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """``look_alike_figures`` per unordered pair of an operation and its look-alike, the worst first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for name, row in per_operation.items():
        pair = "/".join(sorted((name, OPERATIONS[name].look_alike)))
        sums[pair][0] += row["count"]
        sums[pair][1] += row["count"] * row["right"]
    rows = {pair: {"count": count, "right": round(right / count, 3)} for pair, (count, right) in sums.items()}
    return dict(sorted(rows.items(), key=lambda item: item[1]["right"]))


def measure(
    config: ProbeConfig,
    dev: Sequence[Problem],
    pairs: Sequence[Problem],
    perturbed: Sequence[Problem],
    shifted: Sequence[Problem],
) -> dict[str, Any]:
    """All figures of a policy: conversations on ``dev``, ``perturbed`` and ``shifted``, look-alikes on ``pairs``."""
    turns = turn_figures(roll_out(config, dev))
    asked = [problem for problem in pairs for _ in range(config.num_samples)]
    per_operation = look_alike_figures(asked, asyncio.run(first_responses(config, pairs)))
    return {
        "config": {**asdict(config), "model": config.model.name, "output_file": None},
        "turns": turns,
        "shifted": turn_figures(roll_out(config, shifted)) if shifted else None,
        "gaming": gaming_figures(roll_out(config, perturbed, "perturbed")) if perturbed else None,
        "look_alike_pairs": pair_figures(per_operation),
        "operations": per_operation,
    }


def main(config: ProbeConfig) -> None:
    """Generate problems, measure, print, write."""
    rng = random.Random(config.seed)
    dev = [sample_problem(rng, "dev") for _ in range(config.num_problems)]
    pairs = look_alike_problems(rng, config.look_alike_decisions)
    sampled = (sample_problem(rng, "dev") for _ in itertools.count())
    full = (problem for problem in sampled if problem.fully_specified)
    perturbed = list(itertools.islice(full, config.perturbed_problems))
    rng = random.Random(f"{config.seed}-shifted")
    shifted = [sample_problem(rng, "shifted") for _ in range(config.shifted_problems)]
    figures = measure(config, dev, pairs, perturbed, shifted)
    if config.output_file is not None:
        config.output_file.parent.mkdir(parents=True, exist_ok=True)
        config.output_file.write_text(json.dumps(figures, indent=1) + "\n")
    print_summary(f"{config.model} on {len(dev)} dev problems", {k: str(v) for k, v in figures["turns"].items()})
    if figures["shifted"] is not None:
        print_summary("on shifted problems", {k: str(v) for k, v in figures["shifted"].items()})
    if figures["gaming"] is not None:
        print_summary("under feedback from perturbed tests", {k: str(v) for k, v in figures["gaming"].items()})
    for title in ("look_alike_pairs", "operations"):
        weakest = list(figures[title].items())[:5]
        print(f"weakest {title}:", ", ".join(f"{name} {row['right']:.3f} (n={row['count']})" for name, row in weakest))
