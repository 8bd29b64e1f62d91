"""``process_multi_turn_taco.py``: from evaluated trajectories to bandit prompts, streaming.

Reads problems one batch at a time, plans each (``cobalt.bandit``), counts prompt tokens for the batch, and keeps the
records in a temporary file; memory holds one batch, whatever the size of the input. The output is shuffled by the seed.
"""

import hashlib
import json
import os
import random
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from pydantic.dataclasses import dataclass

from cobalt.bandit.answers import Answers, Purpose, examples, stored_answers
from cobalt.bandit.builder import (
    BanditConfig,
    Context,
    ProblemPlan,
    cut_overlong,
    output_order,
    plan_problem,
    with_share_solved,
)
from cobalt.bandit.evaluated import EVALUATED_FIELDS, Conversation, EvaluatedProblem, parse_problem
from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import (
    InputFile,
    OptionalModelName,
    OutputFile,
    Positive,
    ReadConfig,
    Share,
    UploadConfig,
)
from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.cli.tasks import batched
from cobalt.errors import InputError, first_line
from cobalt.preproc.outputs import publish, refuse_livecodebench
from cobalt.prompts import Wording
from cobalt.records import TestCases, dump_line, read_jsonl, write_lines
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.records.jsonl import InvalidLines, Record, checked_object, naming, refuse_half_characters
from cobalt.records.manifest import check_paths, origin_of, recorded_run, tell_other_origin

BATCH_PROBLEMS = 64
AS_BEFORE = {"hide_expected": False, "selection": "max_variance", "reward_tests": "all", "weak_tests": 0.0}
AS_BEFORE |= {"keep": None, "purpose": "grpo", "answers": 1}
"""Settings that older outputs do not record: these values mean what was done then."""
FINGERPRINT_LENGTH = 12
QUANTILES = (50, 90, 100)


@dataclass(frozen=True, kw_only=True)
class BanditPromptsConfig(UploadConfig, PromptsConfig, ReadConfig, BanditConfig):
    """Build bandit prompts from multi-turn trajectories that carry hidden-test pass rates."""

    input_file: InputFile
    """Evaluated multi-turn trajectories (JSONL)."""
    output_file: OutputFile
    """Bandit prompts (JSONL); with --for rft or dpo training examples."""
    purpose: Annotated[Purpose, tyro.conf.arg(name="for")] = "grpo"
    """What learns from the contexts: grpo, which samples its responses; rft, from stored passing answers; dpo, from
    pairs of a stored passing and a stored failing answer."""
    answers: Positive = 1
    """Most examples of one context, each with other answers, the first in the file; of rft and dpo."""
    model_name: OptionalModelName = None
    """Model name or directory whose tokenizer measures prompts; default: the model in the manifest of the input."""
    apply_chat_template_kwargs: str | None = None
    """JSON for the chat template, as the model is served: {"enable_thinking": false}."""
    reward_tests: Literal["all", "hidden"] = "all"
    """Tests that score responses and give the pass rates: all of a problem, or those that no feedback shows."""
    weak_tests: Share = 0.0
    """Share of the problems whose responses are scored by the first of these tests alone, drawn by --seed. Without
    --reward_tests hidden that is a public one, which a special case passes."""
    perturbed_file: Path | None = None
    """Evaluated trajectories collected with perturbed feedback, to be mixed in."""
    perturbed_ratio: Share | None = None
    """Share of perturbed records in the output; needs --perturbed_file."""
    stats: bool = False
    """Print prompt tokens by turn, too: median, 90th percentile and maximum."""
    license: str | None = None
    """Licence written on the card; by default that of the input's card."""


def main(config: BanditPromptsConfig) -> None:
    """Build the set described by ``config``; see the command's flags."""
    if (config.perturbed_file is None) != (config.perturbed_ratio is None):
        raise InputError("--perturbed_file and --perturbed_ratio belong together: give both or neither")
    if config.purpose == "grpo" and config.answers != 1:
        raise InputError("--answers counts stored answers: it needs --for rft or --for dpo")
    inputs = [config.input_file] + ([config.perturbed_file] if config.perturbed_file else [])
    check_paths(inputs, [config.output_file], asdict(config))
    refuse_livecodebench(inputs, config.push_to_hub)
    origin = origin_of(config.input_file)
    model_name = config.model_name or origin.get("model")
    if model_name is None:
        raise InputError(f"--model_name is needed: no manifest of {config.input_file} names the model that wrote it")
    template = template_arguments(config.apply_chat_template_kwargs)
    counter = PromptCounter(load_tokenizer(model_name), **template)
    if config.model_name is not None:
        tell_other_origin(config.input_file, model_id=model_identity(config.model_name))
    if config.perturbed_file is not None:
        tell_other_origin(config.perturbed_file, model_id=origin.get("model_id"), checker=origin.get("checker"))
    prompts = config.prompts_or_none(inputs)
    if config.hide_expected and prompts and not prompts.feedback.rstrip().endswith("{feedback}"):
        raise InputError("--hide_expected: it would also hide the text that the prompt set has after '{feedback}'")
    wording = Wording(prompts)
    stats = SetStats()

    own = ("reward_tests", "weak_tests", "perturbed_ratio", "purpose", "answers")
    names = (*BanditConfig.__dataclass_fields__, *own)
    content = {name: getattr(config, name) for name in names if getattr(config, name) != AS_BEFORE.get(name, ...)}
    contents = {config.output_file: {**content, "tokenizer": counter.fingerprint}}
    with (
        recorded_run("process_multi_turn_taco", asdict(config), inputs, contents, origin) as run,
        naming(config.output_file),
        tempfile.TemporaryFile(dir=config.output_file.parent) as spool,
    ):
        ends = array("Q", [0])  # of the records in the spool: their order is drawn when their number is known
        holds_solved = array("B")  # of the clean records, whether a program of theirs is solved
        num_records = []
        for path, perturbed in zip(inputs, (False, True), strict=False):
            before = len(ends)
            invalid = InvalidLines(config.skip_invalid)

            def parse(row: Record, perturbed: bool = perturbed) -> tuple[EvaluatedProblem, dict[str, Answers]]:
                problem = parse_problem(row, perturbed, hidden_only=config.reward_tests == "hidden")
                for trajectory in problem.trajectories:
                    refuse_half_characters(trajectory.conversation)
                    wording.see(trajectory.conversation)
                answers = {} if config.purpose == "grpo" else stored_answers(row, problem)
                refuse_half_characters(*map(asdict, answers.values()))
                if random.Random(f"{config.seed}-weak-{problem.id}").random() < config.weak_tests:
                    problem = replace(problem, test_cases=TestCases.parse(problem.test_cases).select([0]).to_json())
                return problem, answers

            problems = read_jsonl(path, EVALUATED_FIELDS, parse=parse, on_invalid=invalid.handler)
            for batch in batched(with_progress(problems, path), BATCH_PROBLEMS):
                planned: list[tuple[Sequence[Context], dict[str, Answers]]] = []
                for problem, answers in batch:
                    plan = plan_problem(problem, config)
                    stats.add_problem(problem, plan)
                    planned += [(contexts_C, answers) for contexts_C in plan.contexts_NC]
                counts = iter(counter.count([context.conversation for contexts, _ in planned for context in contexts]))
                for contexts_C, answers in planned:
                    tokens_C = [next(counts) for _ in contexts_C]
                    kept = cut_overlong(contexts_C, tokens_C, config.max_prompt_tokens)
                    stats.add_trajectory(contexts_C, kept)
                    for context, tokens in zip(kept, tokens_C, strict=False):
                        records = [context.to_record()]
                        if config.purpose != "grpo":
                            records = examples(context, answers, config.purpose, config.answers)
                        stats.add_context(context, tokens, is_answered=bool(records))
                        for record in records:
                            ends.append(ends[-1] + spool.write(dump_line(record)))
                            if not perturbed:
                                holds_solved.append(context.prev_best == 1)
            stats.invalid_lines += invalid.count
            num_records.append(len(ends) - before)

        if config.purpose != "grpo" and not sum(num_records):
            wanted = "passing answer" if config.purpose == "rft" else "passing and a failing answer"
            raise InputError.at(config.input_file, None, f"no context has a stored {wanted}")
        clean, wrong = with_share_solved(holds_solved, config.keep, config.seed), range(num_records[0], len(ends) - 1)
        places = [*clean, *wrong]

        def lines() -> Iterator[bytes]:
            for number in output_order(len(clean), len(wrong), config.perturbed_ratio or 0.0, config.seed):
                i = places[number]
                spool.seek(ends[i])
                yield spool.read(ends[i + 1] - ends[i])

        stats.records_written = write_lines(config.output_file, lines())
        stats.surplus = len(ends) - 1 - stats.records_written
        run.counts = stats.counts()

    kind = "Bandit prompts" if config.purpose == "grpo" else f"Examples for {config.purpose.upper()}"
    print_summary(f"{kind}: {config.output_file}", stats.table(config.stats))
    title, command = f"{kind} for multi-turn code generation", "process_multi_turn_taco.py"
    publish(title, command, [config.output_file], inputs, config.push_to_hub, config.license)


def load_tokenizer(model_name: str, setting: str = "--model_name ", **options: Any) -> Any:
    """The tokenizer of a model directory or hub name; ``InputError`` if there is none or it has no chat template.

    ``setting``: how the model was given, for the complaint; ``options``: of ``from_pretrained``.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers import AutoTokenizer

    if not Path(model_name).is_dir():
        refuse_missing_model(model_name, setting)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_name, **options)
    except (OSError, TypeError, ValueError) as error:  # TypeError: of a folder without one
        raise InputError(f"{setting}{model_name}: no tokenizer can be loaded ({first_line(error)})") from None
    if not tokenizer.chat_template:
        raise InputError(f"{setting}{model_name}: its tokenizer has no chat template")
    return tokenizer


def template_arguments(text: str | None) -> dict[str, Any]:
    """Arguments of a chat template from their JSON. Raises ``InputError`` for anything but an object."""
    try:
        return {} if text is None else checked_object(json.loads(text))
    except ValueError as error:
        raise InputError(f"apply_chat_template_kwargs: {error}") from None


class PromptCounter:
    """Counts the tokens of ``tokenizer.apply_chat_template(prompt, add_generation_prompt=True)``.

    ``template``: more arguments of ``apply_chat_template``.
    """

    def __init__(self, tokenizer: Any, **template: Any):
        self._tokenizer, self._template = tokenizer, template

    @property
    def fingerprint(self) -> str:
        """Names the tokenizer by its vocabulary and chat template, with arguments, wherever it lies."""
        parts = [self._tokenizer.get_vocab(), self._tokenizer.chat_template, *filter(None, [self._template])]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:FINGERPRINT_LENGTH]

    def count(self, prompts: Sequence[Conversation]) -> list[int]:
        return self._count(self._rendered(prompts))

    def longer_than(self, most: int, prompts: Sequence[Conversation]) -> int:
        """How many prompts have more than ``most`` tokens."""
        # a token of ASCII text holds at least one character: most prompts need not be tokenized
        texts = [text for text in self._rendered(prompts) if len(text) >= most or not text.isascii()]
        return sum(tokens > most for tokens in self._count(texts))

    def _rendered(self, prompts: Sequence[Conversation]) -> list[str]:
        settings = {**self._template, "add_generation_prompt": True, "tokenize": False}
        return self._tokenizer.apply_chat_template([list(m) for m in prompts], **settings) if prompts else []

    def _count(self, texts: Sequence[str]) -> list[int]:
        how = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
        return [len(ids) for ids in self._tokenizer(list(texts), **how)["input_ids"]] if texts else []


class SetStats:
    """What a set is made of, collected while it is built; contexts are those before the mix with perturbed ones."""

    def __init__(self) -> None:
        self.invalid_lines = self.records_written = self.unanswered = self.surplus = self.overlong = 0
        self._problems: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._trajectories: Counter[str] = Counter()
        self._tokens: dict[tuple[str, int], list[int]] = {}

    def add_problem(self, problem: EvaluatedProblem, plan: ProblemPlan) -> None:
        """Count one problem, kept or dropped, and its trajectories."""
        fate = f"dropped: {plan.dropped}" if plan.dropped else "kept"
        size = len(problem.trajectories) + problem.infra_dropped
        self._problems[f"{fate} (perturbed)" if problem.perturbed else fate] += 1
        self._sizes[size] += 1
        self._trajectories.update({"read": size, "dropped: infra error": problem.infra_dropped, "with contexts": 0})

    def add_trajectory(self, contexts_C: Sequence[Context], kept: Sequence[Context]) -> None:
        """Count a trajectory's contexts. ``kept``: those that are not too long."""
        self._trajectories["with contexts"] += any(context.num_programs > 0 for context in kept)
        self.overlong += len(contexts_C) - len(kept)

    def add_context(self, context: Context, tokens: int, is_answered: bool = True) -> None:
        """Count one context of ``tokens`` prompt tokens. ``is_answered``: whether a record comes of it."""
        self.unanswered += not is_answered
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
            "contexts_too_long": self.overlong,
            "contexts_without_answers": self.unanswered,
            "invalid_lines_skipped": self.invalid_lines,
            "records_left_out_for_shares": self.surplus,
            "records_written": self.records_written,
        }

    def table(self, with_tokens: bool) -> dict[str, Any]:
        """Problems, trajectories, contexts by turn (with the quantiles of their prompt tokens), records."""
        sizes, of, contexts = sorted(self._sizes), self._trajectories, {}
        for name, tokens in self._tokens_by_name.items():
            quantiles = " / ".join(f"{value:.0f}" for value in np.percentile(tokens, QUANTILES))
            told = f" (tokens p50 / p90 / max: {quantiles})" if with_tokens else ""
            contexts[f"contexts {name}"] = f"{len(tokens):,}{told}"
        return {
            **{f"problems {name}": count for name, count in sorted(self._problems.items())},
            "trajectories per problem": f"{sizes[0]} to {sizes[-1]}" if sizes else "none",
            **{f"trajectories {name}": count for name, count in of.items()},
            "trajectories left out": of["read"] - of["dropped: infra error"] - of["with contexts"],
            **contexts,
            **({"contexts left out, too long": self.overlong} if self.overlong else {}),
            **({"contexts without stored answers": self.unanswered} if self.unanswered else {}),
            "invalid lines skipped": self.invalid_lines,
            **({"records left out for --keep, --perturbed_ratio": self.surplus} if self.surplus else {}),
            "records written": self.records_written,
        }
