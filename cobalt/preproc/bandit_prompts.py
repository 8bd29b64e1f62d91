"""``process_multi_turn_taco.py``: from evaluated trajectories to bandit prompts, streaming.

Reads problems one batch at a time, plans each (``cobalt.bandit``), counts prompt tokens for the batch, and spools the
records to disk; memory holds one batch, whatever the size of the file. The output is shuffled with the seed.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic.dataclasses import dataclass

from cobalt.bandit import (
    EVALUATED_FIELDS,
    BanditConfig,
    Context,
    ProblemPlan,
    Selection,
    StopRule,
    cut_overlong,
    plan_problem,
)
from cobalt.bandit.evaluated import OPENING_MESSAGES, Conversation, EvaluatedProblem, parse_problem
from cobalt.bandit.mixing import output_order
from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import InputFile, OptionalModelName, OutputFile, Positive, ReadConfig, Share, UploadConfig
from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.cli.tasks import batched
from cobalt.errors import InputError
from cobalt.preproc.bandit_stats import SetStats
from cobalt.preproc.cards import CardInfo, publish, refuse_livecodebench
from cobalt.preproc.prompt_lengths import PromptCounter, load_tokenizer
from cobalt.preproc.spool import Spool
from cobalt.prompts import Wording
from cobalt.records import read_jsonl, write_lines
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import origin_of, recorded_run

BATCH_PROBLEMS = 64
LATER_SETTINGS = ("hide_expected", "selection")


@dataclass(frozen=True, kw_only=True)
class BanditPromptsConfig(UploadConfig, PromptsConfig, ReadConfig):
    """Build bandit prompts from multi-turn trajectories that carry hidden-test pass rates."""

    input_file: InputFile
    """Evaluated multi-turn trajectories (JSONL)."""
    output_file: OutputFile
    """Bandit prompts (JSONL)."""
    model_name: OptionalModelName = None
    """Model name or directory whose tokenizer measures prompts; default: the model in the manifest of the input."""
    is_test: bool = False
    """Build a validation set: per problem one trajectory, the one with the smallest improvement."""
    num_turns: Positive = 3
    """Contexts per trajectory."""
    max_trajectories: Positive = 4
    """Trajectories per problem after down-sampling."""
    selection: Literal["max_variance", "min_variance", "random"] = "max_variance"
    """Which trajectories down-sampling keeps, by the spreads of their pass rates: the most different, the most alike,
    or any, by the seed."""
    max_prompt_tokens: Positive = 10_000
    """Contexts whose prompt is longer are cut off."""
    reward_tests: Literal["all", "hidden"] = "all"
    """Tests that score responses and give the pass rates: all of a problem, or those that no feedback shows."""
    hide_expected: bool = False
    """Leave the expected output out of the feedback in the prompts."""
    stop_rule: Literal["released", "solved", "none"] = "released"
    """Which pair of solved attempts ends a trajectory's contexts: k−1 and k+1 (released) or k−1 and k (solved); none:
    nothing but their number and length ends them."""
    perturbed_file: Path | None = None
    """Evaluated trajectories collected with perturbed feedback, to be mixed in."""
    perturbed_ratio: Share | None = None
    """Share of perturbed records in the output; needs --perturbed_file."""
    seed: int = 42
    """Orders and samples the output, and draws trajectories for --selection random."""
    stats: bool = False
    """Print the full table of the set and write its histogram to OUTPUT.stats.png and .svg."""
    license: str | None = None
    """Licence written on the card; by default that of the input's card."""

    @property
    def settings(self) -> BanditConfig:
        """The part that the pure builder needs."""
        names = [field.name for field in dataclasses.fields(BanditConfig)]
        values = {name: getattr(self, name) for name in names}
        return BanditConfig(**{**values, "stop_rule": StopRule(self.stop_rule), "selection": Selection(self.selection)})

    @property
    def inputs(self) -> list[Path]:
        """The files read, clean first."""
        return [self.input_file] + ([self.perturbed_file] if self.perturbed_file else [])


def main(config: BanditPromptsConfig) -> None:
    """Build the set described by ``config``; see the command's flags."""
    _check_flags(config)
    refuse_livecodebench(config.inputs, config.push_to_hub)
    model_name = _model_name(config)
    counter = PromptCounter(load_tokenizer(model_name))
    content = {**dataclasses.asdict(config.settings), "perturbed_ratio": config.perturbed_ratio}
    for name in LATER_SETTINGS:  # their defaults are what was done before there were such settings
        if content[name] == getattr(BanditConfig(), name):
            del content[name]
    if config.reward_tests != "all":
        content["reward_tests"] = config.reward_tests
    contents = {config.output_file: {**content, "tokenizer": counter.fingerprint}}
    stats, wording = SetStats(), Wording(config.prompts_or_none(config.inputs))
    with recorded_run("process_multi_turn_taco", dataclasses.asdict(config), config.inputs, contents) as run:
        _build(config, counter, wording, stats)
        run.counts, run.origin = stats.counts(), origin_of(config.input_file)
    print_summary(f"Bandit prompts: {config.output_file}", stats.table() if config.stats else stats.summary())
    if config.stats:
        stats.picture(f"{config.output_file.name}.stats").write(config.output_file.parent)
    publish(_card(config, model_name, stats), [config.output_file], config.inputs, config.push_to_hub)


def _build(config: BanditPromptsConfig, counter: PromptCounter, wording: Wording, stats: SetStats) -> None:
    """Spool the records of all files, then write the chosen ones in the order of the seed."""
    with Spool(config.output_file) as spool:
        num_clean = _spool_file(spool, config.input_file, False, config, counter, wording, stats)
        num_perturbed = 0
        if config.perturbed_file is not None:
            num_perturbed = _spool_file(spool, config.perturbed_file, True, config, counter, wording, stats)
        order = output_order(num_clean, num_perturbed, config.perturbed_ratio or 0.0, config.seed)
        stats.records_written = write_lines(config.output_file, spool.lines(order))


def _model_name(config: BanditPromptsConfig) -> str:
    name = config.model_name or origin_of(config.input_file).get("model")
    if name is None:
        raise InputError(f"--model_name is needed: no manifest of {config.input_file} names the model that wrote it")
    return name


def _check_flags(config: BanditPromptsConfig) -> None:
    if (config.perturbed_file is None) != (config.perturbed_ratio is None):
        raise InputError("--perturbed_file and --perturbed_ratio belong together: give both or neither")


def _spool_file(
    spool: Spool,
    path: Path,
    perturbed: bool,
    config: BanditPromptsConfig,
    counter: PromptCounter,
    wording: Wording,
    stats: SetStats,
) -> int:
    """Add the records of one evaluation file to the spool; returns their number."""
    before = len(spool)
    for plans in batched(_plans(path, perturbed, config, wording, stats), BATCH_PROBLEMS):
        for plan, tokens_NC in zip(plans, _count_tokens(counter, plans), strict=True):
            for context, tokens in _kept_contexts(plan, tokens_NC, config.max_prompt_tokens):
                spool.append(context.to_record(perturbed))
                stats.add_context(context, tokens, perturbed)
    return len(spool) - before


def _plans(
    path: Path, perturbed: bool, config: BanditPromptsConfig, wording: Wording, stats: SetStats
) -> Iterator[ProblemPlan]:
    """The plans of the problems that contribute something."""
    invalid = InvalidLines(config.skip_invalid)

    def parse(row: Record) -> EvaluatedProblem:
        problem = parse_problem(row, perturbed=perturbed, hidden_only=config.reward_tests == "hidden")
        for trajectory in problem.trajectories:
            wording.see(trajectory.conversation)
        return problem

    rows = read_jsonl(path, EVALUATED_FIELDS, parse=parse, on_invalid=invalid.handler)
    for problem in with_progress(rows, path):
        plan = plan_problem(problem, config.settings, perturbed)
        stats.add_problem(problem, plan, perturbed)
        if plan.dropped is None:
            yield plan
    stats.invalid_lines += invalid.count


def _count_tokens(counter: PromptCounter, plans: Sequence[ProblemPlan]) -> list[list[list[int]]]:
    """Prompt tokens per plan: [m][0] of the problem alone, [m][k] of the context with k programs."""
    prompts = [_prompts(plan) for plan in plans]
    counts = iter(counter.count([prompts_C for prompts_NC in prompts for prompts_C in prompts_NC]))
    return [[next(counts) for _ in prompts_NC] for prompts_NC in prompts]


def _prompts(plan: ProblemPlan) -> list[list[Conversation]]:
    groups = [[context.conversation for context in contexts_C] for contexts_C in plan.contexts_NC]
    if not groups and plan.first is not None:
        return [[plan.first.conversation]]
    return [[group[0][:OPENING_MESSAGES], *group] for group in groups]


def _kept_contexts(plan: ProblemPlan, tokens_NC: Sequence[Sequence[int]], limit: int) -> Iterator[tuple[Context, int]]:
    """The contexts within the length limit with their tokens; the turn-0 prompt is not checked."""
    if plan.first is not None:
        yield plan.first, tokens_NC[0][0]
    for contexts_C, (_, *tokens_C) in zip(plan.contexts_NC, tokens_NC, strict=False):
        yield from zip(cut_overlong(contexts_C, tokens_C, limit), tokens_C, strict=False)


def _card(config: BanditPromptsConfig, model_name: str, stats: SetStats) -> CardInfo:
    rules = [
        "problems that every first program solves are left out",
        "one prompt per kept problem without any program",
        "validation: the trajectory with the smallest improvement"
        if config.is_test
        else f"down-sampling to {config.max_trajectories} solved and improved trajectories per problem "
        f"({config.selection.replace('_', ' ')})",
        f"contexts of up to {config.num_turns} programs and {config.max_prompt_tokens} prompt tokens "
        f"of {Path(model_name).name}, stop rule `{config.stop_rule}`",
    ]
    if config.reward_tests == "hidden":
        rules.append("public tests do not count in pass rates and are not among the tests")
    if config.hide_expected:
        rules.append("feedback does not show the expected output")
    if config.perturbed_file is not None:
        rules.append(f"a share of {config.perturbed_ratio} collected under perturbed feedback")
    return CardInfo("Bandit prompts for multi-turn code generation", rules, stats.counts(), config.license)
