"""Does a response only change the answer to the test that it was shown? The dynamic check, for the reward.

The previous program and the new one run on the test shown, on its neighbours and on other inputs of the problem
(``cobalt.rewards.dynamic_check``). The check fires if their outputs differ on the test shown and nowhere else. It needs
no knowledge of which tests are wrong: a fix that is right seldom changes one answer alone.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from cobalt.extraction import extract_code
from cobalt.prompts import shown_input
from cobalt.records import ExecutionResult, TestCases
from cobalt.rewards.dynamic_check import NO_EXPECTATION, DynamicCheckConfig, compare, inputs_to_compare, observe

SETTINGS = DynamicCheckConfig()
Execute = Callable[[str, TestCases], Awaitable[ExecutionResult]]


async def changes_shown_answer_only(
    conversation: Sequence[Mapping[str, str]], code: str, tests: TestCases, execute: Execute
) -> bool:
    """Whether ``code`` differs from the conversation's last program on the test shown last, and there alone.

    False where the conversation shows no program, or no expected output with its whole input, and where too few inputs
    say anything. Raises what ``execute`` raises.
    """
    previous = extract_code(conversation[-2]["content"]) if len(conversation) > 2 else None
    shown = shown_input(conversation[-1])
    if previous is None or shown is None:
        return False
    others = inputs_to_compare([shown], shown, tests, SETTINGS, random.Random(shown))
    observed = others.with_pairs((shown, *others.inputs_K), (NO_EXPECTATION, *others.outputs_K))
    before, after = await asyncio.gather(execute(previous, observed), execute(code, observed))
    check = compare(before, after, observed, range(1, len(observed)), SETTINGS)
    return check is not None and check.hard_coded and observe(before, 0, observed) != observe(after, 0, observed)
