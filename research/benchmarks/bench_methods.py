"""What a step of each method costs at the paper's lengths, on one GPU. Nothing is learned.

    python -m research.benchmarks.bench_methods --shapes qwen3-4b    runs, and adds to --results
    python -m research.benchmarks.bench_methods --methods            prints what was predicted, and what was measured

Steps are veRL 0.9.1's own: rollouts by vLLM, scoring, log-probabilities, reference, update, weights to vLLM. Methods
that can share a start of veRL take turns, under the settings of the online recipe. Cobalt and single-turn GRPO go
through veRL's own single-turn loop. *Collection* is ``run_multi_turn`` against vLLM's server.

*Lengths* are log-normal, sigma 0.8, truncated to 256 to 6,144 tokens. Problem, sample and turn seed them, so first
turns are equally long in all methods. vLLM generates that many tokens, past any end token (``price_loops.py``). An
answer of as many tokens then takes their place. It ends with a program, right if the turn is drawn to pass, else
wrong. So the executor judges real programs, and conversations end as MiniCoder's do.

*Example*: a prompt with all its samples, as the paper counts. Online, a problem with all its trajectories.
*Idle*: 1 - (time in which rows generate) / (rows of the step x time of its rollouts). A row whose program runs does
not generate. *Tail*: from the last moment at which all rows generate, until the last response ends; *tail idle* is the
idle share in it. Asynchronous rollouts have neither: their requests wait through updates.
Asynchronously a long step and a short one, whose responses the long one has made, take turns. So their number is even.
The last step of a cell that another follows shares the engine with the other's responses, and does not count.
*Collection's* price is that of the time in which every slot is taken, because a real one has problems enough.
"""

import asyncio
import fcntl
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import pydantic.dataclasses

from benchmarks.harness import PHASES, ROOT
from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig
from cobalt.completion import Completion, Message, Sampling, request_seed
from cobalt.errors import InputError, SetupError
from cobalt.prompts import first_messages, problem_instruction
from cobalt.records.jsonl import read_jsonl, write_whole
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.sandbox import TestCases
from cobalt.tables import markdown_table, show
from cobalt.training import cost_model
from cobalt.training.cost_model import SHAPES, PlanConfig
from research.minicode import wording

Mean = Literal[1000, 3000]
ShapeName = Literal["qwen3-1.7b", "qwen3-4b"]
MethodName = Literal[
    "cobalt", "single-turn", "grpo-mt", "verpo-mt", "cobalt-async", "grpo-mt-async", "verpo-mt-async", "collection"
]
Cells = dict[str, dict[str, Any]]
"""By shape, mean and method: ``seconds`` of phases, GPU-seconds ``per_example``, ``per_response``, ``per_token``."""
Span = tuple[float, float, int]
"""Of a response: when it was asked for, when it was there, and its tokens."""
SYNC, ASYNC = "sync", "colocate_async"
METHODS = {
    "cobalt": ("grpo_online", SYNC, 1),
    "single-turn": ("grpo_online", SYNC, 1),
    "grpo-mt": ("grpo_online", SYNC, 3),
    "verpo-mt": ("verpo_online", SYNC, 3),
    "cobalt-async": ("grpo_online", ASYNC, 1),
    "grpo-mt-async": ("grpo_online", ASYNC, 3),
    "verpo-mt-async": ("verpo_online", ASYNC, 3),
}
"""Recipe, trainer mode, and most turns. Methods with the same first two share a start."""
PROMPTS, SAMPLES, STEPS = 4, 16, 3
"""Of a step; and steps that are measured for each cell."""
SLOTS, PROBLEMS = 128, 12
"""Of collection: requests in flight, and problems with ``SAMPLES`` trajectories each."""
SHORTEST, LONGEST, SIGMA = 256, 6144, 0.8
MEDIANS = {1000: 673.487, 3000: 3691.956}
"""Before truncation, by the mean that it leaves."""
PASSES = (0.395, 0.298, 0.191)
"""Share of MiniCoder's samples that pass at a turn, of those that failed before:
research/results/paper-in-miniature/counts/base.clean.counts.json."""
CONTEXTS = (0, 1, 1, 2, 2, 3)
"""Programs in a problem's six contexts (``cobalt plan --contexts``)."""
PROBLEM_TOKENS, TURN_TOKENS = 1000, 190
"""A problem, and what a program with its feedback adds to the prompt, about. Contexts have as much filler."""
MODEL_LENGTH = 10_240 + LONGEST
RESPONSES_FILE, LOOPS_FILE = "responses.jsonl", "loops.yaml"
TESTS = TestCases(tuple(f"{n} {n + 1}" for n in range(20)), tuple(str(2 * n + 1) for n in range(20)))
PUBLIC = TestCases(TESTS.inputs_K[:4], TESTS.outputs_K[:4])
FILLER = "This line is filler number {number}, and says nothing about the task.\n"
OVERRIDES = f"""
trainer.save_freq=-1 trainer.test_freq=-1 trainer.val_before_train=false
data.shuffle=false data.dataloader_num_workers=0 data.train_batch_size={PROMPTS}
actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS // 2} actor_rollout_ref.rollout.n={SAMPLES}
actor_rollout_ref.rollout.max_model_len={MODEL_LENGTH} actor_rollout_ref.rollout.agent.num_workers=2
reward.reward_kwargs.lengths=policy
""".split()
ASYNC_OVERRIDES = [f"trainer.v1.trainer_mode={ASYNC}", "algorithm.rollout_correction.rollout_is=token"]


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class MethodsBenchConfig(CommandConfig):
    """GPU-seconds of the methods' steps and of collection, on one GPU."""

    methods: tuple[MethodName, ...] = ("cobalt", "single-turn", "grpo-mt")
    """None: only print what is in --results."""
    shapes: tuple[ShapeName, ...] = ("qwen3-1.7b", "qwen3-4b")
    means: tuple[Mean, ...] = (1000, 3000)
    """Of the lengths."""
    models: Path = Path("models")
    """Folder of ``minicoder-1.7b`` and ``minicoder-4b``, by research/benchmarks/widen.py."""
    api_base: str = "http://127.0.0.1:8100/v1"
    """Of the vLLM server that ``collection`` asks."""
    results: Path = Path("research/results/price")
    """prediction.json, and result.json, to which every run adds."""
    output_dir: Path = Path("runs/price")


class Step(NamedTuple):
    """One of a training; ``number`` is -1 if it is a warm one."""

    method: str
    mean: int
    number: int


def main(config: MethodsBenchConfig) -> None:
    """Run what is selected; then print."""
    predicted, found = (config.results / name for name in ("prediction.json", "result.json"))
    for shape in config.shapes:
        for cells in measure(config, shape, config.models / shape.replace("qwen3", "minicoder")):
            with open(predicted) as lock:  # another process may measure on another GPU
                fcntl.flock(lock, fcntl.LOCK_EX)
                write_whole(found, json.dumps(stored(found) | cells, indent=1) + "\n")
    print(tables(json.loads(predicted.read_text()), stored(found)))


def stored(file: Path) -> Cells:
    """What earlier runs wrote."""
    return json.loads(file.read_text()) if file.is_file() else {}


def measure(config: MethodsBenchConfig, shape: str, model: Path) -> Iterator[Cells]:
    """The selected methods at one shape, start by start. Raises ``InputError`` without a model."""
    if config.methods and not (model / "config.json").is_file():
        raise InputError.at(model, None, "no model; research/benchmarks/widen.py makes it")
    for start in dict.fromkeys(METHODS[name][:2] for name in config.methods if name in METHODS):
        folder = config.output_dir / f"{shape}-{'-'.join(start)}"
        steps = steps_of([name for name in config.methods if METHODS.get(name, ())[:2] == start], config.means)
        exit_code = train(model, folder, steps, *start)
        if (folder / METRICS_FILE).is_file():  # of a training that failed, too
            yield measured(shape, steps, folder)
        if exit_code:
            raise SetupError(f"{' '.join(start)}: training ended with {exit_code}, see {folder}/bench.log")
    if "collection" in config.methods:
        for mean in config.means:
            spans = asyncio.run(collect(config, model, mean, config.output_dir / f"{shape}-collection-{mean}"))
            yield {f"{shape} {mean} collection": collected(spans)}


# What is drawn


def drawn(seed: int, mean: int, turn: int) -> tuple[int, bool]:
    """Tokens of a response, and whether its program passes."""
    chance, law = random.Random(seed), statistics.NormalDist(math.log(MEDIANS[mean]), SIGMA)
    low, high = law.cdf(math.log(SHORTEST)), law.cdf(math.log(LONGEST))
    length = round(math.exp(law.inv_cdf(low + (high - low) * chance.random())))
    return length, chance.random() < PASSES[turn]


def played(step: Step) -> list[list[int]]:
    """Tokens of the responses of a step's trajectories, problem by problem."""
    paths = []
    for index in range(PROMPTS):
        for sample in range(SAMPLES):
            path: list[int] = []
            for turn in range(METHODS[step.method][2]):
                length, passes = drawn(request_seed(0, f"{step.number}.{index}", sample, turn), step.mean, turn)
                path.append(length)
                if passes:
                    break
            paths.append(path)
    return paths


def shown_programs(step: Step, index: int) -> int:
    """In the first prompt of a step's problem."""
    is_cobalt = step.method.startswith("cobalt")
    return CONTEXTS[(step.number * PROMPTS + index) % len(CONTEXTS)] if is_cobalt else 0


def answer(passes: bool, name: str) -> str:
    """The end of a response: a program of its own, so that each is run."""
    notes = "".join(f"# note {number} of {name}\n" for number in range(10))
    return f"</think>\n```python\n{notes}a, b = map(int, input().split())\nprint(a {'+' if passes else '-'} b)\n```"


def answer_tokens(tokenizer: Any, length: int, passes: bool, name: str) -> list[int]:
    """A response of so many tokens: filler, then a program. ``length``: ``SHORTEST`` at least."""
    end = [*tokenizer.encode(answer(passes, name), add_special_tokens=False), tokenizer.eos_token_id]
    thought = tokenizer.encode(FILLER.format(number=1), add_special_tokens=False)
    return (thought * (length // len(thought) + 1))[: length - len(end)] + end


def instruction(tokenizer: Any, tokens: int, name: str) -> str:
    """A problem of about so many tokens."""
    line = len(tokenizer.encode(FILLER.format(number=20), add_special_tokens=False))
    filler = "".join(FILLER.format(number=number) for number in range(tokens // line))
    return problem_instruction(f"{filler}Problem {name}: print the sum of two numbers.", prompts=wording.prompts())


# Training


def steps_of(methods: Sequence[str], means: Sequence[int]) -> list[Step]:
    """Of one start: a warm step of each method, a short one, then rounds; asynchronous methods each by itself."""
    if METHODS[methods[0]][1] == ASYNC:
        return [Step(method, mean, n) for mean in means for method in methods for n in (-1, -1, *range(STEPS))]
    rounds = [Step(method, mean, number) for number in range(STEPS) for mean in means for method in methods]
    return [*(Step(method, min(MEDIANS), -1) for method in methods), *rounds]


def training_rows(steps: Sequence[Step], tokenizer: Any) -> pd.DataFrame:
    """The prompts of each step. The loops read ``price``."""
    rows = []
    for place, step in enumerate(steps, 1):
        for index in range(PROMPTS):
            name, tokens = f"{step.number}.{index}", PROBLEM_TOKENS + TURN_TOKENS * shown_programs(step, index)
            info = {"split": "train", "index": len(rows), "prev_best_pass_rate": 0.0}
            info["tools_kwargs"] = {"public_test_cases": PUBLIC.to_json()}
            info["price"] = {"step": place, "mean": step.mean, "problem": name}
            row = {
                "data_source": "code",
                "prompt": first_messages(instruction(tokenizer, tokens, name), wording.prompts()),
            }
            row["reward_model"] = {"style": "rule", "ground_truth": TESTS.to_json()}
            row["agent_name"] = "price_single" if METHODS[step.method][2] == 1 else "price_turns"
            rows.append({**row, "extra_info": info})
    return pd.DataFrame(rows)


def train(model: Path, folder: Path, steps: Sequence[Step], recipe: str, mode: str) -> int:
    """One start of veRL, in an empty folder. Returns its exit code."""
    from transformers import AutoTokenizer

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data, loops = folder / "train.parquet", folder / LOOPS_FILE
    rows = [*steps, steps[-1]]  # asynchronous rollouts are a step ahead
    training_rows(rows, AutoTokenizer.from_pretrained(model)).to_parquet(data)
    kinds = {"price_single": "SingleTurn", "price_turns": "Turns"}
    loops.write_text(
        json.dumps([{"name": name, "_target_": f"research.benchmarks.price_loops.{kinds[name]}"} for name in kinds])
    )
    files = {"MODEL": str(model), "TRAIN_FILE": str(data), "VAL_FILE": str(data), "OUTPUT_DIR": str(folder)}
    environment = {**os.environ, **files, "PRESET": "paper-qwen3-h200", "N_GPUS": "1", "EXECUTOR": "local"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = [f"trainer.total_training_steps={len(steps)}"]
    own.append(f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops.resolve()}")
    overrides = [*OVERRIDES, *own, *(ASYNC_OVERRIDES if mode == ASYNC else ())]
    with (folder / "bench.log").open("w") as log:
        command = ["bash", str(ROOT / f"scripts/train_{recipe}.sh"), *overrides]
        return subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode


def measured(shape: str, steps: Sequence[Step], folder: Path) -> Cells:
    """What a training's files say. Raises ``SetupError`` if its responses are not those that were drawn."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for row in read_jsonl(folder / RESPONSES_FILE, ("step",), unique=None):
        spans[row["step"]].append((row["start"], row["end"], row["tokens"]))
    names = {**PHASES, "weights": "timing_s/update_weights"}
    warm = {steps.index(step) + 1 for step in steps if step.number < 0}
    shared = {place for place, (step, following) in enumerate(pairwise(steps), 1) if step[:2] != following[:2]}
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for metrics in read_metrics(folder / METRICS_FILE):
        place = int(metrics["step"])
        step = steps[place - 1]
        if place in warm or PHASES["step"] not in metrics:
            continue
        found: dict[str, Any] = {name: metrics[f"cost/{name}"] for name in ("responses", "prompt_tokens")}
        found |= {"examples": PROMPTS, "tokens": metrics["cost/response_tokens"]}
        found["seconds"] = {phase: metrics[name] for phase, name in names.items() if name in metrics}
        if METHODS[step.method][1] == SYNC:
            found |= waiting(spans[place], PROMPTS * SAMPLES)
            if found["tokens"] != (asked := sum(map(sum, played(step)))):
                raise SetupError(f"{folder}: step {place} has {found['tokens']:g} tokens, not {asked}")
        elif place in shared or (found["responses"], found["tokens"]) not in batches([*steps, steps[-1]], step):
            continue
        cells[f"{shape} {step.mean} {step.method}"].append(found)
    for cell, of_cell in cells.items():
        if cell.endswith("-async"):
            del of_cell[: len(of_cell) % 2]
    return {cell: {**prices(of_cell), "steps": of_cell} for cell, of_cell in cells.items() if of_cell}


def batches(steps: Sequence[Step], step: Step) -> set[tuple[int, int]]:
    """Responses and tokens of any ``PROMPTS`` problems of a step's method and mean.

    An asynchronous step learns from the first that are finished. They may be another cell's.
    """
    paths = [path for each in steps if each[:2] == step[:2] for path in played(each)]
    problems = [paths[start : start + SAMPLES] for start in range(0, len(paths), SAMPLES)]
    made = [(sum(map(len, problem)), sum(map(sum, problem))) for problem in problems]
    return {
        (sum(responses), sum(tokens))
        for responses, tokens in (zip(*of, strict=True) for of in combinations(made, PROMPTS))
    }


def prices(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean seconds and shares of steps, and GPU-seconds on one GPU by what the steps made."""
    seconds = {phase: statistics.fmean(step["seconds"][phase] for step in steps) for phase in steps[0]["seconds"]}
    names = [name for name in ("responses", "tokens", "idle", "tail_idle", "tail_s") if name in steps[0]]
    means = {name: statistics.fmean(step[name] for step in steps) for name in names}
    made = {"per_example": PROMPTS, "per_response": means["responses"], "per_token": means["tokens"]}
    return {"seconds": seconds, **means, **{name: seconds["step"] / count for name, count in made.items()}}


def waiting(spans: Sequence[Span], rows: int) -> dict[str, float]:
    """``idle``, ``tail_idle`` and ``tail_s`` (see the module), and when all rows generated first and last."""
    changes = sorted([*((start, 1) for start, _, _ in spans), *((end, -1) for _, end, _ in spans)])
    begin, end = changes[0][0], changes[-1][0]
    running, before, used, tail_used, full_from, full_until = 0, begin, 0.0, 0.0, begin, begin
    for moment, change in changes:
        used += running * (moment - before)
        tail_used += running * (moment - before)
        if running >= rows and moment > before:
            full_from = before if full_until == begin else full_from
            full_until, tail_used = moment, 0.0
        running, before = running + change, moment
    tail = end - full_until
    found = {"idle": 1 - used / (rows * (end - begin)), "tail_idle": 1 - tail_used / (rows * tail) if tail else 0.0}
    return {**found, "tail_s": tail, "full_from": full_from, "full_until": full_until}


# Collection


@dataclass(frozen=True)
class ForcedSampling(Sampling):
    """Exactly ``max_tokens``."""

    extra_body: dict[str, Any] = field(default_factory=lambda: {"ignore_eos": True})


class ForcedEngine:
    """Has ``engine`` generate drawn numbers of tokens for ``run_multi_turn``, and answers as drawn."""

    def __init__(self, engine: Any, mean: int):
        self._engine, self._mean, self.spans = engine, mean, list[Span]()
        self.model_id, self.max_in_flight = engine.model_id, engine.max_in_flight

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Raises ``SetupError`` for a response of another length."""
        length, passes = drawn(seed, self._mean, sum(message["role"] == "assistant" for message in messages))
        forced, start = ForcedSampling(sampling.temperature, sampling.top_p, length), time.time()
        made = await self._engine.generate(messages, forced, seed)
        if made.completion_tokens != length:
            raise SetupError(f"vLLM gave {made.completion_tokens} tokens, not {length}")
        self.spans.append((start, time.time(), length))
        return replace(made, text=answer(passes, str(seed)))


async def collect(config: MethodsBenchConfig, model: Path, mean: int, folder: Path) -> list[Span]:
    """Trajectories of three programs, from the server."""
    from transformers import AutoTokenizer

    from cobalt.inference.endpoints import open_openai_engine
    from cobalt.inference.flags import MultiTurnOpenWeightConfig
    from cobalt.inference.run import main as run_multi_turn

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer, problems = AutoTokenizer.from_pretrained(model), folder / "problems.jsonl"
    tests = {"test_cases": TESTS, "public_test_cases": PUBLIC, "hidden_test_cases": TESTS}
    texts = {name: cases.to_json() for name, cases in tests.items()}
    with problems.open("w") as file:
        for number in range(PROBLEMS):
            row = {"id": number, "instruction": instruction(tokenizer, PROBLEM_TOKENS, str(number)), **texts}
            file.write(json.dumps(row) + "\n")
    turns = {"num_turns": cost_model.TURNS - 1, "enable_thinking": True, "from_scratch": True}
    files = {
        "input_file": problems,
        "output_file": folder / "turns.jsonl",
        "api_base": config.api_base,
        "prompts": str(wording.FILE),
    }
    flags = MultiTurnOpenWeightConfig(**files, **turns, num_completions=SAMPLES, executor="local")
    async with open_openai_engine(flags, SLOTS) as engine:
        forced = ForcedEngine(engine, mean)
        await run_multi_turn(flags, engine=nullcontext(forced))
    return forced.spans


def collected(spans: Sequence[Span]) -> dict[str, Any]:
    """Seconds in all; GPU-seconds of a token and of a mean response while every slot is taken."""
    full = waiting(spans, SLOTS)
    first, last = full["full_from"], full["full_until"]
    inside = (tokens * max(0.0, min(end, last) - max(start, first)) / (end - start) for start, end, tokens in spans)
    per_token = (last - first) / sum(inside)
    seconds = max(end for _, end, _ in spans) - min(start for start, _, _ in spans)
    per_response = per_token * statistics.fmean(tokens for _, _, tokens in spans)
    return {"seconds": {"step": seconds}, "per_response": per_response, "per_token": per_token}


# What the cost model expects, and the table


def predicted_step(shape_name: str, step: Step) -> dict[str, Any]:
    """Seconds of the phases, from the lengths that are drawn. Each later turn's prompt is computed by itself."""
    shape, paths = SHAPES[shape_name], played(step)
    flops, prompt_tokens = 0.0, 0
    for number, path in enumerate(paths):
        for turn, length in enumerate(path):
            prompt = PROBLEM_TOKENS + TURN_TOKENS * (shown_programs(step, number // SAMPLES) + turn)
            elsewhere = 0.0 if turn else 1 - 1 / SAMPLES  # share of the prompt that other rows of the group bear
            flops += cost_model.forward_flops(shape, prompt, length, 1)
            flops -= elsewhere * cost_model.forward_flops(shape, prompt, 0, 1)
            prompt_tokens += prompt
    responses, tokens, rows = sum(map(len, paths)), sum(map(sum, paths)), len(paths)
    plan = PlanConfig(prompt=prompt_tokens // responses, response=tokens // responses)
    # the engine waits for the longest trajectory; asynchronously, others take the places of finished ones
    running = rows if METHODS[step.method][1] == ASYNC else tokens / max(map(sum, paths))
    decoding = tokens / running * cost_model.token_s(plan, shape, running)
    reading = cost_model.prefill_s(plan, shape, PROMPTS + responses - rows)
    weights = cost_model.SYNC_S_PER_GB * cost_model.HALF * cost_model.parameters(shape) / cost_model.GB
    updates = math.ceil(responses / (PROMPTS // 2 * SAMPLES))
    seconds = {"generation": decoding + reading + weights, **cost_model.passes_s(flops, shape, updates)}
    return {"seconds": {**seconds, "step": sum(seconds.values())}, "responses": responses, "tokens": tokens}


def tables(expected: Mapping[str, Any], found_cells: Cells) -> str:
    """What was expected of each cell, and what was measured; Cobalt also with its collection."""
    of_example = cost_model.TURNS * PlanConfig.trajectories / (PlanConfig.contexts * PlanConfig.epochs)
    rows = []
    for source, cells in (("predicted", expected["cells"]), ("measured", found_cells)):
        for cell, found in cells.items():
            seconds, setting = found.get("seconds", {}), cell.rpartition(" ")[0]
            numbers = [seconds.get(phase) for phase in ("generation", "old log-probs", "reference", "update", "step")]
            numbers += [found.get(name) for name in ("tail_s", "tail_idle", "per_example", "per_response")]
            rows.append((cell, source, *numbers, 1000 * found["per_token"]))
            collection = cells.get(f"{setting} collection")
            if cell.endswith(" cobalt") and collection:
                for trainings in (1, 2, 6):
                    price = found["per_example"] + collection["per_response"] * of_example / trainings
                    label = f"{cell}, collection over {trainings}"
                    rows.append((label, source, *[None] * 7, price, None, None))
    for method, price in expected["paper"].items():
        rows.append((f"{method}, 8B", "the paper", *[None] * 7, price, None, None))
    columns = ("cell", "", "generation", "old", "reference", "update", "step", "tail, s", "tail idle")
    columns += ("GPU-s per example", "per response", "per 1,000 tokens")
    return markdown_table(columns, [[show(cell) for cell in row] for row in rows])


if __name__ == "__main__":
    run(MethodsBenchConfig, main)
