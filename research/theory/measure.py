"""``theory measure``: one policy against the reference whose trajectories give the bandit its contexts.

The policy answers every context once: those of the reference's trajectories, where its programs run on the hidden tests
(J_step), and those of its own, where only the distance to the reference is asked for. J is read from its own
trajectories. Sampling and scoring hold the device; programs of one group of problems run while the next is sampled.
A record is written when its problem is done, so that a killed run repeats a group at most.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass

from cobalt.bandit.evaluated import EVALUATED_FIELDS, MESSAGES_PER_TURN, OPENING_MESSAGES, Conversation, parse_problem
from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import AboveZero, ExecutionConfig, OutputFile, Positive
from cobalt.cli.tasks import batched, for_each
from cobalt.completion import request_seed
from cobalt.errors import InputError
from cobalt.extraction import Rule, extract_code
from cobalt.inference.conversation import history_text
from cobalt.records import RecordFile, id_key, read_jsonl, row_hash
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.records.jsonl import Record
from cobalt.records.manifest import check_paths, recorded_run, refuse_infra_rate
from cobalt.records.rows import RULE_OF_OLD_FILES, raw_responses
from cobalt.sampler.packages import refuse_missing_packages
from cobalt.serving.execution import ExecutionService, Runs, service_of
from cobalt.tables import in_percent, show
from research.theory.bound import OWN, REFERENCE, Table, bounds_of, read_measures

if TYPE_CHECKING:
    from research.theory.pair import Response

    ResponseTable = list[list[Response]]  # [trajectory][turn]

BATCHES_PER_GROUP = 4
"""Batches of similar prompt length are made within a group of problems."""
GROUPS_AT_ONCE = 2
"""One that is sampled, one whose programs run."""


@dataclass(frozen=True, kw_only=True)
class MeasureConfig(ExecutionConfig):
    """Measure J, J_step and the distance to the reference, per problem and turn."""

    policy: str
    """Directory or hub name of the policy."""
    reference: str
    """That of the reference; with the same tokens."""
    contexts: Path
    """The reference's evaluated trajectories (eval_multi_turn.py)."""
    own: Path
    """The policy's own, sampled in the same way: --temperature of here and --top_p 1."""
    output_file: OutputFile
    """Records (JSONL), one per problem; an unfinished file is resumed. Its name is the policy's in the report."""
    enable_thinking: bool = False
    """The trajectories were sampled with this flag."""
    temperature: AboveZero = 1.0
    """Of sampling and of log-probabilities; 1 is what training samples with."""
    max_tokens: Positive = 8192
    """Most tokens in one response, as in the trajectories."""
    batch_size: Positive = 128
    """Most sequences that are sampled together."""
    seed: int = 42


@dataclasses.dataclass(frozen=True)
class PairedProblem:
    """A problem: the reference's trajectories, which give the bandit its contexts, and the policy's own; by side."""

    id: Any
    test_cases: str
    contexts: Mapping[str, list[list[Conversation]]]
    """``[trajectory][turn]``: what was shown before the turn."""
    pass_rates: Mapping[str, Table]
    """On hidden tests."""
    input_hash: str
    """Changes with either row."""
    extraction: Rule
    """How the programs of the reference's trajectories were found."""


def read_pairs(config: MeasureConfig) -> tuple[list[PairedProblem], int, int]:
    """The problems of which both files hold a valid trajectory, the number of others, and T, that of the shorter file.

    Both files are outputs of ``eval_multi_turn.py``. Trajectories with an infrastructure failure are left out. Raises
    ``InputError``.
    """

    def parse(row: Record) -> tuple[Any, int, str, Rule]:
        """The problem, its number of turns, the row's hash, and how its programs were found."""
        problem, responses_TN = parse_problem(row, hidden_only=True), raw_responses(row)
        rule = row.get("extraction", RULE_OF_OLD_FILES)
        for trajectory in problem.trajectories:
            for turn, answer in enumerate(trajectory.conversation[OPENING_MESSAGES::MESSAGES_PER_TURN]):
                shown = history_text(responses_TN[turn][trajectory.index], config.enable_thinking, rule)
                if answer["content"] not in (shown, ""):  # nothing is left of what was cut inside its thinking
                    wanted = "without" if config.enable_thinking else "with"
                    raise ValueError(f"problem {row['id']!r} was sampled {wanted} --enable_thinking")
        return problem, len(row["public_pass_rates"]), row_hash(row), rule

    rows = {}  # by side and id
    for side, path in ((REFERENCE, config.contexts), (OWN, config.own)):
        found = [row for row in read_jsonl(path, EVALUATED_FIELDS, parse=parse) if row[0].trajectories]
        for problem, num_turns, *_ in found:
            if num_turns != found[0][1]:
                text = f"problem {problem.id!r} has {num_turns} turns, others {found[0][1]}"
                raise InputError.at(path, None, text)
        rows[side] = {id_key(row[0].id): row for row in found}
    shared = [key for key in rows[REFERENCE] if key in rows[OWN]]
    if not shared:
        raise InputError.at(config.own, None, f"no valid trajectory of a problem in {config.contexts}")
    turns = min(rows[side][shared[0]][1] for side in rows)
    ends = [OPENING_MESSAGES + MESSAGES_PER_TURN * turn for turn in range(turns)]
    pairs = []
    for key in shared:
        played = {side: rows[side][key][0].trajectories for side in rows}
        pairs.append(
            PairedProblem(
                rows[REFERENCE][key][0].id,
                rows[REFERENCE][key][0].test_cases,
                {side: [[each.conversation[:end] for end in ends] for each in of] for side, of in played.items()},
                {side: [list(each.pass_rates_T[:turns]) for each in of] for side, of in played.items()},
                row_hash({side: rows[side][key][2] for side in rows}),
                rows[REFERENCE][key][3],
            )
        )
    return pairs, len(rows[REFERENCE].keys() ^ rows[OWN].keys()), turns


def main(config: MeasureConfig) -> None:
    check_paths([config.contexts, config.own], [config.output_file])
    for flag in ("policy", "reference"):
        refuse_missing_model(getattr(config, flag), f"--{flag} ")
    pairs, unpaired, turns = read_pairs(config)
    refuse_missing_packages()
    ids = [pair.id for pair in pairs]

    async def measure() -> dict[str, Any]:
        """Write the records that are missing; counts of the whole output, whichever run made it."""
        async with service_of(config) as service:
            content = {
                "policy": model_identity(config.policy),
                "reference": model_identity(config.reference),
                "enable_thinking": config.enable_thinking,
                "temperature": config.temperature,
                "max_tokens": config.max_tokens,
                "seed": config.seed,
                "turns": turns,
                "execution": await service.describe(),
            }
            inputs = [config.contexts, config.own]
            with recorded_run(
                "python -m research theory measure", asdict(config), inputs, {config.output_file: content}
            ) as run:
                with RecordFile(config.output_file) as output:
                    output.refuse_loss(ids)
                    # A record is done if no infrastructure failure left a hole in it.
                    stored = ((pair, output.get(pair.id, pair.input_hash)) for pair in pairs)
                    left = [
                        pair for pair, row in stored if row is None or any(None in r for r in row["step_pass_rates"])
                    ]
                    if left:
                        await write_records(config, turns, left, output, service)
                    written = output.finish(ids)
                rates, tokens = [], 0
                for record in read_jsonl(config.output_file):
                    rates += [rate for rates_T in record["step_pass_rates"] for rate in rates_T]
                    tokens += record["response_tokens"]
                run.counts = {"problems": written, "unpaired": unpaired, "turns": turns, "programs": len(rates)}
                run.counts |= {"response_tokens": tokens, "infra_errors": rates.count(None)}
        return run.counts

    counts = asyncio.run(measure())
    refuse_infra_rate(counts["infra_errors"], counts["programs"], "programs", config.max_infra_rate)
    found = bounds_of(read_measures(config.output_file))
    in_words = {
        "J/T (%)": show(in_percent(found.multi_turn)),
        "J_step/T (%)": show(in_percent(found.stepwise)),
        "gap (points)": show(in_percent(found.gap)),
        "eta (nats)": show(found.radius),
        "constant": "–" if found.constant is None else show(found.constant.value),
    }
    print_summary("python -m research theory measure", {"output": config.output_file, **counts, **in_words})


async def write_records(
    config: MeasureConfig, turns: int, problems: Sequence[PairedProblem], output: RecordFile, service: ExecutionService
) -> None:
    """Sample and score on the device, run the programs beside it."""
    from research.theory.pair import PolicyPair  # brings torch, which flags do without

    policies = PolicyPair(config.policy, config.reference, config.temperature, config.max_tokens, config.batch_size)
    device = asyncio.Lock()
    contexts = turns * sum(map(len, problems[0].contexts.values()))
    groups = batched(problems, max(1, BATCHES_PER_GROUP * config.batch_size // contexts))
    with progress_bar(total=len(problems), unit="problem") as bar:

        async def write(problem: PairedProblem, tables: "dict[str, ResponseTable]") -> None:
            runs: Runs = {}  # equal programs of the problem run once

            async def pass_rate(response: "Response") -> float | None:
                # of the program that a next turn would see, as in eval_multi_turn.py
                rule = problem.extraction
                program = extract_code(history_text(response.text, config.enable_thinking, rule), rule)
                return (await service.run(program, problem.test_cases, runs)).pass_rate

            def by_side(of: "Callable[[Response], float]") -> dict[str, list[list[float]]]:
                return {side: [list(map(of, row)) for row in table] for side, table in tables.items()}

            rates = await asyncio.gather(*(asyncio.gather(*map(pass_rate, row)) for row in tables[REFERENCE]))
            record = {
                "id": problem.id,
                "reference_pass_rates": problem.pass_rates[REFERENCE],
                "own_pass_rates": problem.pass_rates[OWN],
                "step_pass_rates": rates,
                "step_responses": [[response.text for response in row] for row in tables[REFERENCE]],
                "kl": by_side(lambda response: response.kl),
                "log_ratio": by_side(lambda response: response.log_ratio),
                "response_tokens": sum(answer.tokens for table in tables.values() for row in table for answer in row),
                "input_hash": problem.input_hash,
            }
            output.append(record)
            bar.update()

        async def measure(group: list[PairedProblem]) -> None:
            asked = [
                (context, request_seed(config.seed, [side, problem.id], number, turn))
                for problem in group
                for side, contexts_NT in problem.contexts.items()
                for number, contexts_T in enumerate(contexts_NT)
                for turn, context in enumerate(contexts_T)
            ]
            async with device:
                found = iter(await asyncio.to_thread(policies.respond, *zip(*asked, strict=True)))
            tables = [
                {side: [[next(found) for _ in row] for row in contexts_NT] for side, contexts_NT in of.contexts.items()}
                for of in group
            ]
            await asyncio.gather(*map(write, group, tables))

        await for_each(groups, measure, lambda: GROUPS_AT_ONCE)
