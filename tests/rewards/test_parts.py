"""The reward, branch by branch (docs/method.md), and its properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.extraction import answer_of, extract_code
from cobalt.fences import blocks_of
from cobalt.rewards import PAPER, RewardConstants, penalised, training_reward, validation_reward
from cobalt.rewards.parts import split_response

PROGRAM = "```python\nprint(1)\n```"


def words(text):
    """A count that makes lengths easy to write: one token per word."""
    return len(text.split())


def respond(think="plan", answer=PROGRAM, after=""):
    return f"<think>\n{think}\n</think>\n\n{answer}\n{after}"


def many(count):
    """``count`` distinct words: no repetition."""
    return " ".join(f"w{index}" for index in range(count))


def parts(response=None, pass_rate=0.0, prev_best=0.0, **rule):
    return training_reward(respond() if response is None else response, pass_rate, prev_best, words, **rule)


@pytest.mark.parametrize(
    ("pass_rate", "correct"),
    [(1.0, 1.0), (0.999, 0.2), (0.5, 0.2), (0.499, 0.0), (0.05, 0.0), (0.0, -0.1)],
)
def test_correctness_steps(pass_rate, correct):
    assert parts(pass_rate=pass_rate).correct == correct


def test_no_program_gets_minus_one_whatever_its_form():
    assert parts("no block here", pass_rate=None, prev_best=0.5) == parts(pass_rate=None, prev_best=0.5)
    assert parts(pass_rate=None).total == parts(pass_rate=None).correct == -1
    assert parts(pass_rate=None).improve == parts(pass_rate=None).format == 0


@pytest.mark.parametrize(
    ("pass_rate", "prev_best", "improve"),
    [
        (0.75, 0.5, 0.1 * 0.25 / 0.5),  # better: relative to what was missing
        (0.2, 0.1, 0.1 * 0.1 / 0.9),
        (0.5, 0.5, -0.1 - 0.2),  # no better: the reward so far (0.2) is replaced by -0.1
        (0.25, 0.5, -0.1 - 0.1 * 0.5 - 0.0),
        (0.0, 0.5, -0.1 - 0.1 - (-0.1)),
        (0.9, 1.0, -0.1 - 0.1 * 0.1 - 0.2),
        (0.5, 0.0, 0.0),  # nothing passed before
        (0.5, None, 0.0),
        (1.0, 0.5, 0.0),  # solved
        (1.0, 1.0, 0.0),
    ],
)
def test_improvement(pass_rate, prev_best, improve):
    assert parts(pass_rate=pass_rate, prev_best=prev_best).improve == pytest.approx(improve, abs=1e-12)


@pytest.mark.parametrize(
    "response",
    [
        "plan\n```python\nprint(1)\n```",  # no </think>
        respond(think="a </think> b"),
        respond(answer="no program"),
        respond(answer=PROGRAM + "\nor\n" + PROGRAM),
        respond(answer="```python\nprint(1)\n```\nlike\n```text\nx\n```"),  # another block after it
        respond(answer="```python\nprint('`')\n```"),  # a backtick inside
        respond(answer="```python\nprint(1)```"),  # not closed on its own line
        respond(answer="```python\nprint(1)"),  # not closed
        respond(answer="```\nprint(1)\n```"),  # language missing
        respond(think="```python\nprint(1)\n```", answer="as above"),  # program in the thinking only
        respond(think="one block of thirty-two letters!" * 8),
        respond(after="x" * 256),
    ],
)
@pytest.mark.parametrize("extraction", ["markdown", "released"])
def test_malformed_responses(response, extraction):
    assert parts(response, pass_rate=1.0, extraction=extraction).format == -0.9
    assert parts(response, pass_rate=0.0, extraction=extraction).format == -0.9


@pytest.mark.parametrize(
    ("response", "penalty"),
    [
        (respond(), 0.0),
        (respond(think="```python\nprint(2)\n```"), 0.0),
        (respond(answer=f"Usage:\n```text\n1 2\n```\n{PROGRAM}"), 0.0),  # another language before it
        (respond(answer="```python3\nprint(1)\n```"), 0.0),  # any continuation of the language
        (respond(think="one block of thirty-two letters!" * 7), 0.0),
        (respond(after="x" * 255), 0.0),
        ("thinking without its opening tag</think>" + PROGRAM, 0.0),
        (respond(think=many(4095)), 0.0),  # and the opening tag
        (respond(think=many(4096)), -0.01),
        (respond(answer=f"{many(2045)}\n{PROGRAM}"), 0.0),
        (respond(answer=f"{many(2047)}\n{PROGRAM}"), -0.01),
        (respond(after=many(512)), 0.0),
        (respond(after=many(513)), -0.01),
        (respond(think=many(5000), after=many(3000)), -0.01),  # once, however many limits
    ],
)
@pytest.mark.parametrize("extraction", ["markdown", "released"])
def test_a_well_formed_response_costs_nothing_but_for_its_length(response, penalty, extraction):
    """Where the reward so far is not negative."""
    assert parts(response, pass_rate=0.25, extraction=extraction).format == penalty


@pytest.mark.parametrize(
    ("response", "form", "released"),
    [
        (respond(answer="```python \nprint(1)\n```"), 0.0, 0.0),
        (respond(answer="```python\r\nprint(1)\r\n```"), 0.0, 0.0),
        (respond(answer="~~~python\nprint(1)\n~~~"), 0.0, -0.9),
        (respond(answer="1. Code:\n   ```python\n   print(1)\n   ```"), 0.0, -0.9),
        (respond(answer='```python\n"""\n```\n"""\nprint(1)\n```'), -0.9, -0.9),  # a backtick inside
        (respond(answer="I use ```python here: `x`\n\nprint(1)\n```"), -0.9, -0.9),  # no block at all
        (respond(answer="```python\nprint(1)\n``` " + many(513)), -0.01, -0.01),
        (respond(answer="print(1) is ```python code\n```"), -0.9, 0.0),
    ],
)
def test_the_form_is_read_by_the_rule_that_finds_the_program(response, form, released):
    assert parts(response, pass_rate=1.0).format == form
    assert parts(response, pass_rate=1.0, extraction="released").format == released


@pytest.mark.parametrize(
    ("think", "bonus"),
    [
        ("plan", 0.0),
        (many(1023), 0.0),  # and the opening tag: tanh(1)
        ("Wait, WRONG", 0.01),
        ("waiting errors butter", 0.0),  # whole words only
        ("wait but wait but wait but wait but", 0.01),  # four times each
        ("wait wait wait wait wait", 0.0),  # five times
        ("wait mistake however but retry", 0.025),
        ("wait mistake however but retry error verify wrong evaluate", 0.025),  # capped
    ],
)
def test_failed_programs_earn_for_thinking_and_keywords(think, bonus):
    response = respond(think=think)
    length = 0.075 * math.tanh(words(f"<think> {think}") / 1024)
    assert parts(response).format == pytest.approx(length + bonus)


@pytest.mark.parametrize(
    ("response", "form"),
    [
        (respond(think=f"wait but {many(5000)}"), -0.1),  # instead of both bonuses
        (respond(think=f"wait but {many(5000)}", after=many(600)), -0.2),
        (respond(think=f"wait but {many(5000)}", after=many(3000)), -0.3),
        (respond(think="wait", after=many(600)), -0.1 + 0.005 + 0.075 * math.tanh(2 / 1024)),  # keeps its bonuses
    ],
)
def test_overlong_failed_programs(response, form):
    assert parts(response).format == pytest.approx(form)


def test_the_replaced_reward_decides_about_the_form():
    """A pass rate of 0.6 after 0.8 is negative so far, although its correctness is not."""
    assert parts(respond(think="wait"), pass_rate=0.6, prev_best=0.8).format > 0
    assert parts(respond(think="wait"), pass_rate=0.6, prev_best=0.4).format == 0


def test_total_is_clipped_behind_a_penalty_and_constants_can_be_changed():
    assert (parts("print", prev_best=0.5).total, parts("print", prev_best=0.5).correct) == (-1, -0.1)
    assert training_reward(respond(), 0.25, 0, words, RewardConstants(correct_some=0.5)).total == 0.5
    penalties = [(0.75, 0.5, -0.3), (1.0, 0.25, 0.75), (0.75, 9, -1)]
    for pass_rate, penalty, total in penalties:
        assert penalised(parts(pass_rate=pass_rate), penalty).total == pytest.approx(total)


def test_validation_is_pass_or_fail():
    assert [validation_reward(rate) for rate in (1.0, 0.95, 0.0, None)] == [1, 0, 0, 0]


def test_pieces_are_stripped():
    pieces = split_response("<think>\n a \n</think>\n b\n```python\nc\n```\n d \n")
    assert (pieces.thinking, pieces.answer, pieces.explanation) == ("<think>\n a", "b\n```python\nc\n```\n d", "d")


RATES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0, 1))
MARKS = ["</think>", "<think>", "```python\n", "\n```", "`", "wait ", "but ", "```c++\n", "~~~\n", '"""', "\n"]
TEXTS = st.sampled_from([*MARKS, "x" * 40, many(600), many(2100), many(4200)])
PIECES = st.lists(TEXTS, max_size=12).map("".join)
RESPONSES = st.one_of(PIECES, st.builds(respond, think=PIECES, after=PIECES), st.builds(respond, think=st.text()))


@given(RESPONSES, st.one_of(st.none(), RATES), st.one_of(st.none(), RATES))
def test_bounds_and_sum(response, pass_rate, prev_best):
    reward = parts(response, pass_rate, prev_best)
    assert PAPER.low <= reward.total <= PAPER.high
    assert reward.total == max(-1, min(1, reward.correct + reward.improve + reward.format))
    assert all(math.isfinite(part) for part in (reward.correct, reward.improve, reward.format))


@given(RESPONSES)
def test_a_well_formed_response_has_the_program_that_runs(response):
    if split_response(response) is not None:
        (program,) = [block.code for block in blocks_of(answer_of(response)) if block.is_python]
        assert extract_code(response) == program


@given(RESPONSES, RATES, RATES, RATES)
def test_more_passing_tests_never_cost(response, prev_best, one, other):
    low, high = sorted((one, other))
    assert parts(response, low, prev_best).total <= parts(response, high, prev_best).total + 1e-12


@pytest.mark.parametrize(
    ("pass_rate", "prev_best", "total"), [(0.75, 0.5, 0.2), (0.5, 0.5, 0.2), (0.25, 0.5, 0.0), (1.0, 0.5, 1.0)]
)
def test_without_the_part_for_improvement_the_context_does_not_count(pass_rate, prev_best, total):
    found = training_reward(respond(), pass_rate, prev_best, words, RewardConstants(improvement=False))
    assert found.improve == 0 and found.total == total


@pytest.mark.parametrize(
    ("response", "well_formed_for"),
    [
        (respond(), {"required", "optional"}),
        (PROGRAM, {"optional", "none"}),
        (f"I print it.\n{PROGRAM}\nDone.", {"optional", "none"}),
        (f"<think>\n{PROGRAM}", set()),  # the thinking has no end
        (respond("one</think>two"), set()),
        ("no block here", set()),
    ],
)
@pytest.mark.parametrize("extraction", ["markdown", "released"])
def test_a_well_formed_response_thinks_as_it_is_asked_to(response, well_formed_for, extraction):
    if extraction == "released" and response.startswith("<think>\n```"):
        return  # this rule knows no beginning of thinking
    for thinking in ("required", "optional", "none"):
        form = parts(response, 1.0, extraction=extraction, thinking=thinking).format
        assert form == (0.0 if thinking in well_formed_for else PAPER.malformed)


def test_without_thinking_there_is_no_bonus_for_it():
    assert parts(PROGRAM, 0.0, thinking="none").format == 0.0
    assert parts(respond("wait, but " + many(40)), 0.0).format > 0.0
