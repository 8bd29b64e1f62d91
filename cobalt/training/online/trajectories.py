"""How the policy plays: program, feedback, next program, for all trajectories of a batch together.

The protocol is that of ``run_multi_turn_vllm.py --enable_thinking``: public tests give feedback, and the history holds
what follows a response's thinking. A trajectory ends when a program passes all public tests, at the last turn, when the
next prompt would be too long, or by an infrastructure failure. The programs of a turn run from the moment that their
responses are complete, while others are still generated; the next turn begins when all of them have run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cobalt.completion import Message
from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.prompts import feedback_message, feedback_to_policy, with_feedback
from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.training.online.programs import BackgroundPrograms
from cobalt.training.scoring import is_finished


@dataclass(frozen=True)
class Request:
    """A prompt's token ids, and the seed of the one response to it (engines with seeds of their own ignore it)."""

    prompt: tuple[int, ...]
    seed: int


OnFinished = Callable[[int, list[int]], None]
"""Takes a request's index and its response's token ids, the end token included."""

Generate = Callable[[Sequence[Request], OnFinished], None]
"""Samples a response to every request, and hands each over as soon as it is complete, from any thread."""


@dataclass(frozen=True)
class Rules:
    """What bounds a trajectory, and how its texts become tokens and back."""

    tokenizer: Any
    turns: int
    max_prompt: int
    """Tokens."""
    max_response: int
    """Tokens; a response of this length without an end token was cut off."""
    require_end: bool
    """A response that was cut off counts as one without a program."""

    def program_of(self, response: list[int]) -> str | None:
        """The program in a response, as the reward manager reads it."""
        if self.require_end and not is_finished(response, self.max_response, self.tokenizer.eos_token_id):
            return None
        return extract_code(self.text_of(response))

    def text_of(self, response: list[int]) -> str:
        """Without special tokens."""
        return self.tokenizer.decode(response, skip_special_tokens=True)

    def prompt_of(self, messages: list[Message]) -> tuple[int, ...]:
        """Token ids, made as veRL makes those of its data."""
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))


@dataclass
class Trajectory:
    """One conversation of the policy. ``prompts`` and ``responses`` have one entry of token ids per turn played."""

    messages: list[Message]
    next_prompt: tuple[int, ...]
    seeds_T: Sequence[int]
    public_tests: str | None
    """JSON; not needed with a single turn."""
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    open: bool = True
    failed: bool = False
    """An infrastructure failure ended it: nothing may be learned from it."""

    def request(self) -> Request:
        """For the next turn."""
        return Request(self.next_prompt, self.seeds_T[len(self.responses)])

    def tests(self) -> TestCases:
        """Raises ``InputError`` where the data holds none."""
        if self.public_tests is None:
            raise InputError(
                "the training data lack extra_info.tools_kwargs.public_test_cases, whose feedback the turns show: make "
                "them with preproc/verl_preproc_single_turn.py from problems with public_test_cases"
            )
        return TestCases.parse(self.public_tests)

    def respond(self, response: list[int]) -> None:
        """Take the response of this turn."""
        self.prompts.append(self.next_prompt)
        self.responses.append(response)

    def read(self, result: ExecutionResult, rules: Rules) -> None:
        """Take what this turn's program did: the next prompt, or the end."""
        self.failed = result.infra_error is not None
        if self.failed or result.solved:
            self.open = False
            return
        text = history_text(rules.text_of(self.responses[-1]), enable_thinking=True)
        self.messages = [
            *self.messages,
            {"role": "assistant", "content": text},
            feedback_message(feedback_to_policy(with_feedback(result, self.tests()))),
        ]
        self.next_prompt = rules.prompt_of(self.messages)
        self.open = len(self.next_prompt) <= rules.max_prompt


def play(trajectories: Sequence[Trajectory], generate: Generate, programs: BackgroundPrograms, rules: Rules) -> float:
    """Play all trajectories to their ends; returns the seconds in which only programs were waited for."""
    waited_s = 0.0
    for turn in range(rules.turns):
        playing = [trajectory for trajectory in trajectories if trajectory.open]
        if not playing:
            break
        results = _play_turn(playing, generate, programs if turn + 1 < rules.turns else None, rules)
        started = time.monotonic()
        done = {index: result.result() for index, result in results.items()}
        waited_s += time.monotonic() - started
        for index, result in done.items():
            playing[index].read(result, rules)
    return waited_s


def _play_turn(
    playing: Sequence[Trajectory], generate: Generate, programs: BackgroundPrograms | None, rules: Rules
) -> dict[int, Any]:
    """One response for each trajectory; futures of what their programs do, unless nobody will read it (None)."""
    tests = [trajectory.tests() for trajectory in playing] if programs else []
    results = {}

    def finished(index: int, response: list[int]) -> None:
        playing[index].respond(response)
        if programs is not None:
            results[index] = programs.submit(rules.program_of(response), tests[index])

    generate([trajectory.request() for trajectory in playing], finished)
    return results
