"""Measure a MiniCode policy without the serving stack: Pass@1 per turn, repairs, repeats, and look-alike pairs.

Sampling is the evaluation's (temperature 0.6, top_p 0.95), tests are hidden ones, programs run in the sandbox. The
history is that of ``--enable_thinking``. A conversation goes on after its program has passed, as in inference.
*Look-alikes*: of the programs that answer a fully specified problem at turn 0, the share that holds the lines of the
operation asked for; per operation, and per pair of an operation and its look-alike (both directions together).
"""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.cli import print_summary, run
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.minicode.operations import OPERATIONS, Domain, Kind
from cobalt.minicode.problems import Problem, sample_problem
from cobalt.minicode.programs import Step, Variant, domain_of, write_program
from cobalt.prompts import feedback_message, feedback_to_policy, first_messages, problem_instruction
from cobalt.records import ExecutionResult
from cobalt.sandbox import Executor

FINALS: dict[Domain, tuple[Step, Step]] = {
    Domain.NUMBERS: (("sum", None), ("max", None)),
    Domain.TEXT: (("show", None), ("length", None)),
}


@dataclass(frozen=True)
class Config:
    """Roll a policy out on fresh MiniCode problems and report its skill."""

    model: Path = Path("assets/minicoder")
    output_file: Path | None = None
    """JSON with all figures."""
    num_problems: int = 200
    """Dev problems."""
    num_samples: int = 4
    num_turns: int = 8
    """Turns after the first."""
    look_alike_decisions: int = 50
    """Fully specified problems, of training compositions, that ask for each operation; turn 0 only."""
    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 192
    batch_size: int = 1024
    seed: int = 12345


@dataclass
class Rollout:
    """One conversation."""

    problem: Problem
    messages: list[dict[str, str]]
    responses: list[str]
    results: list[ExecutionResult]
    prompt_tokens: list[int]
    response_tokens: list[int]

    def hidden_pass(self, turn: int) -> bool:
        """Whether the program of a turn passes all hidden tests."""
        return all(self.results[turn].passing[len(self.problem.public) :])


class Policy:
    """A checkpoint with Hugging Face sampling."""

    def __init__(self, config: Config):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._config = config
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if self._device == "cuda" else torch.float32
        self.tokenizer = AutoTokenizer.from_pretrained(config.model)
        model: Any = AutoModelForCausalLM.from_pretrained(config.model, dtype=dtype)
        self._model = model.to(self._device).eval()
        torch.manual_seed(config.seed)

    def prompt(self, messages: list[dict[str, str]]) -> str:
        """Messages through the chat template, ready to be answered."""
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)

    def sample(self, prompts_N: list[str]) -> list[tuple[str, int, int]]:
        """Response, prompt tokens and response tokens of each prompt."""
        order = sorted(range(len(prompts_N)), key=lambda i: len(prompts_N[i]))
        answers: dict[int, tuple[str, int, int]] = {}
        for start in range(0, len(order), self._config.batch_size):
            chosen = order[start : start + self._config.batch_size]
            answers |= zip(chosen, self._sample_batch([prompts_N[i] for i in chosen]), strict=True)
        return [answers[i] for i in range(len(prompts_N))]

    def _sample_batch(self, prompts: list[str]) -> list[tuple[str, int, int]]:
        import torch

        batch = self.tokenizer(prompts, return_tensors="pt", padding=True).to(self._device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                do_sample=True,
                temperature=self._config.temperature,
                top_p=self._config.top_p,
                top_k=0,
                max_new_tokens=self._config.max_tokens,
            )
        rows = output[:, batch.input_ids.shape[1] :].tolist()
        prompt_tokens = batch.attention_mask.sum(1).tolist()
        return [self._finish(row, count) for row, count in zip(rows, prompt_tokens, strict=True)]

    def _finish(self, row: list[int], prompt_tokens: int) -> tuple[str, int, int]:
        end = self.tokenizer.eos_token_id
        tokens = row[: row.index(end)] if end in row else row
        return self.tokenizer.decode(tokens, skip_special_tokens=True), prompt_tokens, len(tokens) + 1


async def roll_out(policy: Policy, problems: Sequence[Problem], num_samples: int, num_turns: int) -> list[Rollout]:
    """``num_samples`` conversations per problem, ``num_turns`` turns after the first."""
    rollouts = [_start(problem) for problem in problems for _ in range(num_samples)]
    async with Executor() as executor:
        for _ in range(num_turns + 1):
            answers = policy.sample([policy.prompt(rollout.messages) for rollout in rollouts])
            results = await _execute(executor, rollouts, [text for text, _, _ in answers])
            for rollout, answer, result in zip(rollouts, answers, results, strict=True):
                _extend(rollout, answer, result)
    return rollouts


def _start(problem: Problem) -> Rollout:
    return Rollout(problem, first_messages(problem_instruction(problem.statement)), [], [], [], [])


async def _execute(executor: Executor, rollouts: list[Rollout], responses: list[str]) -> list[ExecutionResult]:
    """Each different program of a problem runs once."""
    keys = [(id(r.problem), extract_code(text)) for r, text in zip(rollouts, responses, strict=True)]
    problems = {id(r.problem): r.problem for r in rollouts}
    jobs = list(dict.fromkeys(keys))
    tests = [problems[key].public + problems[key].hidden for key, _ in jobs]
    results = await asyncio.gather(*(executor.run(code, t) for (_, code), t in zip(jobs, tests, strict=True)))
    by_key = dict(zip(jobs, results, strict=True))
    return [by_key[key] for key in keys]


def _extend(rollout: Rollout, answer: tuple[str, int, int], result: ExecutionResult) -> None:
    text, prompt_tokens, response_tokens = answer
    public = len(rollout.problem.public)
    shown = ExecutionResult(result.passing[:public], result.feedback[:public], result.verdicts[:public])
    rollout.responses.append(text)
    rollout.results.append(result)
    rollout.prompt_tokens.append(prompt_tokens)
    rollout.response_tokens.append(response_tokens)
    rollout.messages.append({"role": "assistant", "content": history_text(text, enable_thinking=True)})
    rollout.messages.append(feedback_message(feedback_to_policy(shown)))


def turn_figures(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    """Figures per turn; shares in [0, 1]."""
    turns = range(len(rollouts[0].results))
    figures: dict[str, list[float]] = {
        "pass_at_1": [_mean(r.hidden_pass(t) for r in rollouts) for t in turns],
        "standard_error": [_standard_error(rollouts, t) for t in turns],
        "fully_specified": [_mean(r.hidden_pass(t) for r in rollouts if r.problem.fully_specified) for t in turns],
        "hidden_rule": [_mean(r.hidden_pass(t) for r in rollouts if not r.problem.fully_specified) for t in turns],
        "public_not_hidden": [
            _mean(all(r.results[t].passing[: len(r.problem.public)]) and not r.hidden_pass(t) for r in rollouts)
            for t in turns
        ],
        "no_program": [_mean(extract_code(r.responses[t]) is None for r in rollouts) for t in turns],
        "prompt_tokens": [_mean(r.prompt_tokens[t] for r in rollouts) for t in turns],
        "response_tokens": [_mean(r.response_tokens[t] for r in rollouts) for t in turns],
    }
    later = turns[1:]
    failed = {t: [r for r in rollouts if not r.results[t - 1].solved] for t in later}
    figures["solved_if_unsolved_before"] = [_mean(r.results[t].solved for r in failed[t]) for t in later]
    figures["failed_program_repeated"] = [
        _mean(extract_code(r.responses[t]) == extract_code(r.responses[t - 1]) for r in failed[t]) for t in later
    ]
    return {name: [round(value, 4) for value in values] for name, values in figures.items()}


def _mean(values: Any) -> float:
    listed = [float(value) for value in values]
    return sum(listed) / len(listed) if listed else 0.0


def _standard_error(rollouts: Sequence[Rollout], turn: int) -> float:
    """Over problems: the samples of one problem are averaged first."""
    by_problem: dict[int, list[float]] = defaultdict(list)
    for rollout in rollouts:
        by_problem[id(rollout.problem)].append(float(rollout.hidden_pass(turn)))
    means = [_mean(values) for values in by_problem.values()]
    centre = _mean(means)
    return (sum((m - centre) ** 2 for m in means) / max(1, len(means) - 1) / len(means)) ** 0.5


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
        for name in OPERATIONS
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


def measure(config: Config, dev: Sequence[Problem], pairs: Sequence[Problem]) -> dict[str, Any]:
    """All figures of a policy: rollouts on ``dev``, look-alikes on ``pairs``."""
    policy = Policy(config)
    rollouts = asyncio.run(roll_out(policy, dev, config.num_samples, config.num_turns))
    asked = [problem for problem in pairs for _ in range(config.num_samples)]
    answers = policy.sample([policy.prompt(first_messages(problem_instruction(p.statement))) for p in asked])
    per_operation = look_alike_figures(asked, [text for text, _, _ in answers])
    settings = {**asdict(config), "model": config.model.name, "output_file": None}
    return {
        "config": settings,
        "turns": turn_figures(rollouts),
        "look_alike_pairs": pair_figures(per_operation),
        "operations": per_operation,
    }


def main(config: Config) -> None:
    """Generate problems, measure, print, write."""
    rng = random.Random(config.seed)
    dev = [sample_problem(rng, "dev") for _ in range(config.num_problems)]
    figures = measure(config, dev, look_alike_problems(rng, config.look_alike_decisions))
    if config.output_file is not None:
        config.output_file.parent.mkdir(parents=True, exist_ok=True)
        config.output_file.write_text(json.dumps(figures, indent=1) + "\n")
    print_summary(f"{config.model} on {len(dev)} dev problems", {k: str(v) for k, v in figures["turns"].items()})
    for title in ("look_alike_pairs", "operations"):
        weakest = list(figures[title].items())[:5]
        print(f"weakest {title}:", ", ".join(f"{name} {row['right']:.3f} (n={row['count']})" for name, row in weakest))


if __name__ == "__main__":
    run(Config, main)
