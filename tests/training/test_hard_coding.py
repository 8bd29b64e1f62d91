"""The penalty for a program that changes nothing but the answer to the test shown."""

import asyncio

import pytest

from cobalt.prompts import feedback_message, first_messages, render_test_feedback
from cobalt.rewards import RewardConstants
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.serving.execution import Runs
from cobalt.training.scoring import Batch, score

TESTS = TestCases(tuple(map(str, range(10, 30))), tuple(str(2 * number) for number in range(10, 30)))
DOUBLE = "double"
PROGRAMS = {
    DOUBLE: lambda n: 2 * n,
    "special": lambda n: 99 if n == 12 else 2 * n,
    "another rule": lambda n: n + 87,
    "nothing changed": lambda n: 2 * n,
    "other answer elsewhere": lambda n: 0 if n == 15 else 2 * n,
}


class Programs:
    """Runs the programs above by name."""

    async def run(self, code: str, tests: TestCases | str, runs: Runs) -> ExecutionResult:
        tests = TestCases.parse(tests)
        outputs = [str(PROGRAMS[code](int(text))) for text in tests.inputs_K]
        passing = tuple(got == want for got, want in zip(outputs, tests.outputs_K, strict=True))
        verdicts = tuple(Verdict.PASSED if passed else Verdict.WRONG_ANSWER for passed in passing)
        return ExecutionResult(verdicts, tuple(outputs), ("",) * len(tests))


def respond(code: str) -> str:
    return f"<think>plan</think>\n```python\n{code}\n```"


def context(feedback: str, previous: str = DOUBLE) -> list[dict[str, str]]:
    answer = {"role": "assistant", "content": f"```python\n{previous}\n```"}
    return [*first_messages("Double it."), answer, feedback_message(feedback)]


WRONG = render_test_feedback(Verdict.WRONG_ANSWER, "12", "24", "99")


def scored(code: str, conversation: list | None, penalty: float, validate: bool = False) -> dict[str, float]:
    batch = Batch(Programs(), lambda text: len(text.split()), validate)  # pyright: ignore[reportArgumentType]
    extra = {"prev_best_pass_rate": 1.0, "conversation": conversation}
    return asyncio.run(score(respond(code), TESTS.to_json(), extra, batch, RewardConstants(hard_coding=penalty)))


def test_a_special_case_for_the_test_shown_is_penalised():
    """It passes 19 of 20: 0.2, replaced by -0.1 - 0.1 * 0.05 since the context solved it; and 0.4 less."""
    result = scored("special", context(WRONG), penalty=0.4)
    assert result["reward_hard_coding"] == -0.4
    expected = -0.1 - 0.1 * 0.05 + result["reward_format"] - 0.4
    assert result["score"] == result["reward_total"] == pytest.approx(expected)


@pytest.mark.parametrize("code", ["another rule", "nothing changed", "other answer elsewhere", DOUBLE])
def test_other_changes_cost_nothing(code):
    assert scored(code, context(WRONG), 0.4)["reward_hard_coding"] == 0
    assert scored(code, context(WRONG), 0.4)["score"] == scored(code, context(WRONG), 0.0)["score"]


@pytest.mark.parametrize(
    "conversation",
    [
        None,
        first_messages("Double it."),
        context(render_test_feedback(Verdict.RUNTIME_ERROR, "12", "", "99", stderr="ValueError")),
        context(render_test_feedback(Verdict.WRONG_ANSWER, "12 " * 300, "24", "99")),
        [*first_messages("Double it."), {"role": "assistant", "content": "no program"}, feedback_message(WRONG)],
    ],
    ids=["no context", "first turn", "a crash was shown", "half an input was shown", "no program before"],
)
def test_without_a_test_shown_there_is_no_penalty(conversation):
    assert scored("special", conversation, 0.4)["reward_hard_coding"] == 0


def test_the_penalty_is_clipped_with_the_rest_not_part_of_validation_and_without_the_setting_not_named():
    assert scored("special", context(WRONG), 5.0)["score"] == -1
    assert scored("special", context(WRONG), 5.0, validate=True)["score"] == 0
    assert scored(DOUBLE, context(WRONG), 5.0, validate=True)["score"] == 1
    assert "reward_hard_coding" not in scored("special", context(WRONG), penalty=0.0)
