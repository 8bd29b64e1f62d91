"""``cobalt theory measure``: one policy against the reference whose trajectories give the bandit its contexts.

The policy answers every context once: those of the reference's trajectories, where its programs run on the hidden tests
(J_step), and those of its own, where only the distance to the reference is asked for. J is read from its own
trajectories. Sampling and scoring hold the device; programs of one group of problems run while the next is sampled.
A record is written when its problem is done, so that a killed run repeats a group at most.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Gt

from cobalt.commands.console import print_summary, progress_bar
from cobalt.commands.flags import ExecutionConfig, OutputFile, Positive
from cobalt.commands.lifecycle import check_paths, recorded_run, refuse_infra_rate
from cobalt.commands.tasks import batched, for_each
from cobalt.completion import request_seed
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.records import RecordFile, read_jsonl
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.records.jsonl import Record
from cobalt.sampler.packages import refuse_missing_packages
from cobalt.serving.execution import open_execution_service
from cobalt.serving.programs import DistinctPrograms, ExecutionCounter
from studies.theory.bounds import bounds_of
from studies.theory.contexts import REFERENCE, PairedProblem, PairedProblems, Rates, read_pairs
from studies.theory.measures import read_measures
from studies.theory.tables import in_words

if TYPE_CHECKING:
    from studies.theory.pair import PolicyPair, Response

    ResponseTable = list[list[Response]]  # [trajectory][turn]

POLICY_PAIR = "studies.theory.pair"
"""By name, for it brings torch, which flags do without."""
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
    temperature: Annotated[float, Gt(0)] = 1.0
    """Of sampling and of log-probabilities; 1 is what training samples with."""
    max_tokens: Positive = 8192
    """Most tokens in one response, as in the trajectories."""
    batch_size: Positive = 128
    """Most sequences that are sampled together."""
    seed: int = 42


def main(config: MeasureConfig) -> None:
    """Measure, print."""
    check_paths([config.contexts, config.own], [config.output_file])
    for flag in ("policy", "reference"):
        refuse_missing_model(getattr(config, flag), f"--{flag} ")
    pairs = read_pairs(config.contexts, config.own, config.enable_thinking)
    refuse_missing_packages()
    counts = asyncio.run(_measure(config, pairs))
    refuse_infra_rate(counts["infra_errors"], counts["programs"], "programs", config.max_infra_rate)
    found = in_words(bounds_of(read_measures(config.output_file)))
    print_summary("cobalt theory measure", {"output": config.output_file, **counts, **found})


async def _measure(config: MeasureConfig, pairs: PairedProblems) -> dict[str, Any]:
    ids = [pair.id for pair in pairs.problems]
    async with open_execution_service(config.executor, config.checker) as service:
        content = {**_content(config), "turns": pairs.num_turns, "execution": await service.describe()}
        inputs = [config.contexts, config.own]
        with recorded_run("cobalt theory measure", asdict(config), inputs, {config.output_file: content}) as run:
            with RecordFile(config.output_file) as output:
                output.refuse_loss(ids)
                left = [pair for pair in pairs.problems if not _is_done(output.get(pair.id, pair.input_hash))]
                if left:
                    await _Measurement(config, pairs.num_turns, output, ExecutionCounter(service)).run(left)
                written = output.finish(ids)
            of_pairs = {"problems": written, "unpaired": pairs.unpaired, "turns": pairs.num_turns}
            run.counts = {**of_pairs, **_counts(config.output_file)}
    return run.counts


def _content(config: MeasureConfig) -> dict[str, Any]:
    """What decides the records, beside their rows and the execution."""
    settings = ("enable_thinking", "temperature", "max_tokens", "seed")
    models = {name: model_identity(getattr(config, name)) for name in ("policy", "reference")}
    return {**models, **{name: getattr(config, name) for name in settings}}


def _is_done(record: Record | None) -> bool:
    """Whether it is there, and no infrastructure failure left a hole in it."""
    return record is not None and not any(None in rates for rates in record["step_pass_rates"])


def _counts(path: Path) -> dict[str, int]:
    """Of the whole output, whichever run made it."""
    counts = {"programs": 0, "response_tokens": 0, "infra_errors": 0}
    for record in read_jsonl(path):
        rates = [rate for rates in record["step_pass_rates"] for rate in rates]
        counts["programs"] += len(rates)
        counts["infra_errors"] += rates.count(None)
        counts["response_tokens"] += record["response_tokens"]
    return counts


class _Measurement:
    """The work on the problems that are left."""

    def __init__(self, config: MeasureConfig, num_turns: int, output: RecordFile, execution: ExecutionCounter):
        self._config, self._turns, self._output, self._execution = config, num_turns, output, execution
        self._device = asyncio.Lock()

    async def run(self, problems: Sequence[PairedProblem]) -> None:
        """Write a record for each of ``problems``."""
        policies = self._open_policies()
        with progress_bar(total=len(problems), unit="problem") as bar:

            async def write(problem: PairedProblem, tables: "Mapping[str, ResponseTable]") -> None:
                self._output.append(await self._record(problem, tables))
                bar.update()

            async def measure(group: list[PairedProblem]) -> None:
                async with self._device:
                    answers = await asyncio.to_thread(self._answers, policies, group)
                await asyncio.gather(*(write(*pair) for pair in zip(group, answers, strict=True)))

            await for_each(self._groups(problems), measure, lambda: GROUPS_AT_ONCE)

    def _open_policies(self) -> "PolicyPair":
        module, config = resolve_name(POLICY_PAIR), self._config
        return module.PolicyPair(
            module.PairConfig(config.policy, config.reference, config.temperature, config.max_tokens, config.batch_size)
        )

    def _groups(self, problems: Sequence[PairedProblem]) -> Iterator[list[PairedProblem]]:
        """Problems with about ``BATCHES_PER_GROUP`` batches of contexts together, by the size of the first one."""
        contexts = self._turns * sum(len(side.problem.trajectories) for side in problems[0].sides.values())
        return batched(problems, max(1, BATCHES_PER_GROUP * self._config.batch_size // contexts))

    def _answers(self, policies: "PolicyPair", group: Sequence[PairedProblem]) -> "list[dict[str, ResponseTable]]":
        """Per problem and side the responses to all contexts."""
        asked = [
            (context, request_seed(self._config.seed, [side, problem.id], *divmod(number, self._turns)))
            for problem in group
            for side, trajectories in problem.sides.items()
            for number, context in enumerate(trajectories.contexts(self._turns))
        ]
        found = iter(policies.respond([context for context, _ in asked], [seed for _, seed in asked]))
        return [
            {
                side: [[next(found) for _ in range(self._turns)] for _ in trajectories.problem.trajectories]
                for side, trajectories in problem.sides.items()
            }
            for problem in group
        ]

    async def _record(self, problem: PairedProblem, tables: "Mapping[str, ResponseTable]") -> Record:
        def by_side(of: "Callable[[Response], float]") -> dict[str, list[list[float]]]:
            return {side: [[of(response) for response in row] for row in table] for side, table in tables.items()}

        responses = [response for table in tables.values() for row in table for response in row]
        return {
            "id": problem.id,
            "reference_pass_rates": problem.reference.pass_rates(self._turns),
            "own_pass_rates": problem.own.pass_rates(self._turns),
            "step_pass_rates": await self._pass_rates(problem, tables[REFERENCE]),
            "step_responses": [[response.text for response in row] for row in tables[REFERENCE]],
            "kl": by_side(lambda response: response.kl),
            "log_ratio": by_side(lambda response: response.log_ratio),
            "response_tokens": sum(response.tokens for response in responses),
            "input_hash": problem.input_hash,
        }

    async def _pass_rates(self, problem: PairedProblem, responses_NT: "ResponseTable") -> Rates:
        """On hidden tests, of the programs that a next turn would see, as in ``eval_multi_turn.py``."""
        distinct = DistinctPrograms(self._execution)

        async def pass_rate(response: "Response") -> float | None:
            program = extract_code(history_text(response.text, self._config.enable_thinking))
            return (await distinct.run(program, problem.reference.problem.test_cases)).pass_rate

        rates = await asyncio.gather(*(pass_rate(response) for row in responses_NT for response in row))
        return list(batched(rates, self._turns))
