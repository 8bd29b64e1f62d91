"""The page in a real headless Chromium, from ``file://``: it renders, filters, obeys keys, and lets nothing out."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from viewed_files import ATTACK, Row, dumped, evaluated_file, hacking_case, stopped

from cobalt.records import write_jsonl
from cobalt.viewer.page import write_page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser here: apt-get install chromium")

BASE = evaluated_file(40, samples=4, turns=3)
TRAINED = evaluated_file(38, samples=2, turns=3, seed=1, gain=0.5)
FILES = (BASE, TRAINED)
Show = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Open the page of some rows. At the end: no complaint, no request, and no text of a file became markup."""
    troubles: list[str] = []
    pages = []

    def open_page(*files: list[Row], size: tuple[int, int] = (1200, 800), scheme: str = "light") -> Any:
        paths = [tmp_path / f"{number}.jsonl" for number in range(len(files))]
        for path, rows in zip(paths, files, strict=True):
            write_jsonl(path, rows)
        write_page(tmp_path / "page.html", paths)
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page.set_default_timeout(60_000)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        address = (tmp_path / "page.html").as_uri()
        page.on("request", lambda one: None if one.url.startswith(address) else troubles.append(one.url))
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        assert page.evaluate("window.broken") is None and page.locator("img").count() == 0
        page.close()
    assert troubles == []


def rates_of(rows: list[Row]) -> list[list[float | None]]:
    """[trajectories][turns]"""
    return [rates for row in rows for rates in row["all_pass_rates"]]


def first_right(rates: list[float]) -> int | None:
    return rates.index(1) if 1 in rates else None


def count_of(page: Any) -> str:
    return page.inner_text("#count")


def option(page: Any, name: str, text: str) -> str:
    """Choose the option that begins with ``text``; its whole text."""
    label = next(label for label in page.locator(f"#filter-{name} option").all_inner_texts() if label.startswith(text))
    page.select_option(f"#filter-{name}", label=label)
    return label


def test_the_overview_is_a_heat_map_and_its_filters_count(show: Show) -> None:
    page = show(BASE)
    rates = rates_of(BASE)
    assert count_of(page) == "40 problems, 160 trajectories"
    share = [round(100 * sum(rates_T[turn] == 1 for rates_T in rates) / len(rates)) for turn in range(3)]
    assert page.locator(".row.all .cell").all_inner_texts() == list(map(str, share))
    strong, weak = (page.locator(f"#rows .cell:text-is('{value}')").first for value in (100, 0))
    assert strong.evaluate("(e) => getComputedStyle(e).backgroundColor") != weak.evaluate(
        "(e) => getComputedStyle(e).backgroundColor"
    )

    asked: dict[str, list[bool]] = {
        **{f"first right at turn {turn}": [first_right(one) == turn for one in rates] for turn in range(3)},
        "never right": [first_right(one) is None for one in rates],
        "gave up": [any(a == 1 and b < 1 for a, b in pairwise(one)) for one in rates],
    }
    for name, found in asked.items():
        assert f"({sum(found)})" in option(page, "outcome", name)
        problems = {number // 4 for number, is_found in enumerate(found) if is_found}
        assert page.inner_text("#count").startswith(f"{len(problems)} of 40 problems")
        assert page.inner_text("#count").endswith(f", {sum(found)} match")
    option(page, "outcome", "any")
    option(page, "verdict", "a turn: fails hidden tests only")
    found = [
        any(
            row["public_pass_rates"][turn][sample] == 1 and row["all_pass_rates"][sample][turn] < 1 for turn in range(3)
        )
        for row in BASE
        for sample in range(4)
    ]
    assert count_of(page).endswith(f", {sum(found)} match")
    option(page, "verdict", "any")
    page.fill("#search", "task 17")
    assert count_of(page).startswith("1 of 40 problems")
    page.fill("#search", "print(7) wrong_answer")
    assert count_of(page).startswith("0 of 40 problems")
    page.press("#search", "Enter")
    found = sum("print(7) " in json.dumps(row["raw_responses"]) and "wrong_answer" in json.dumps(row) for row in BASE)
    page.wait_for_function(f"() => document.getElementById('count').textContent.startsWith('{found} of 40 problems')")


def test_turns_that_were_not_taken_count_but_are_not_shown(show: Show) -> None:
    page = show([stopped(turns=4)])
    assert page.locator("#rows .cell").all_inner_texts() == ["0", "100", "100", "100"]
    page.locator("#rows .row").click()
    page.wait_for_selector(".turn")
    assert page.locator(".turn").count() == 2


def test_a_conversation_turn_by_turn(show: Show) -> None:
    page = show(BASE)
    place, row = next((n, row) for n, row in enumerate(BASE) if not all(passing_of(row)))
    page.locator("#rows .row").nth(place).click()
    page.wait_for_selector(".turn")
    assert page.locator(".turn").count() == 3
    assert not page.locator(".thinking .text").first.is_visible(), "thinking is folded"
    page.locator(".thinking summary").first.click()
    assert page.locator(".thinking .text").first.is_visible()
    rates = row["all_pass_rates"][0]
    told = [text.replace("right", "100 % of hidden tests") for text in page.locator(".turn .rate").all_inner_texts()]
    assert told == [f"{100 * rate:g} % of hidden tests" for rate in rates]
    # a program beside the one before, and whole
    texts = page.locator("#turn-1 pre .line.added").all_inner_texts()
    before, after = (page.evaluate("(t) => t.split('\\n')", code_of(row, turn)) for turn in (0, 1))
    assert texts and set(texts) <= set(after) - set(before)
    page.keyboard.press("d")
    page.wait_for_function("() => document.querySelectorAll('.added').length === 0")
    assert "\n".join(page.locator("#turn-1 pre:not(.small) .line").all_inner_texts()).strip() == code_of(row, 1)
    # the tests
    verdicts = sorted(page.locator("#turn-0 .test summary b").all_text_contents())
    assert verdicts == sorted("passed" if ok else "wrong answer" for ok in passing_of(row))
    assert ATTACK in page.locator("#turn-0 .test[open]").inner_text()


def passing_of(row: Row) -> list[bool]:
    """The public tests of the first program."""
    return row["public_exec_results"][0][0]["passing"]


def code_of(row: Row, turn: int) -> str:
    return row["raw_responses"][turn][0].partition("```python\n")[2].partition("```")[0].strip()


def test_keys(show: Show) -> None:
    page = show(BASE)
    page.keyboard.press("/")
    page.wait_for_function("() => document.activeElement.id === 'search'")
    page.keyboard.press("Escape")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert page.inner_text("#rows .chosen .label") == "p1"
    page.keyboard.press("Enter")
    page.wait_for_selector(".sample:nth-child(1)[aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".sample:nth-child(2)[aria-pressed=true]")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".sample:nth-child(1)[aria-pressed=true]")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("h2:has-text('p2')")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible() and page.locator("#conversation").is_visible()
    page.keyboard.press("Escape")
    page.wait_for_selector("#overview:visible")
    assert page.inner_text("#rows .chosen .label") == "p2"


def test_two_files_side_by_side(show: Show) -> None:
    page = show(*FILES, size=(1300, 800), scheme="dark")
    assert count_of(page) == "40 problems, 236 trajectories"
    # paired: two problems of the first file are not in the second
    shares = [[mean(rates[2] == 1 for rates in row["all_pass_rates"]) for row in rows] for rows in FILES]
    points = round(100 * mean(second - first for first, second in zip(*shares, strict=False)))
    assert page.inner_text(".row.all .change").replace("−", "-") == (f"+{points}" if points > 0 else str(points))
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn")
    boxes = [panel.bounding_box() for panel in page.locator(".panel").all()]
    assert len(boxes) == 2 and boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
    assert [panel.locator(".sample").count() for panel in page.locator(".panel").all()] == [4, 2]
    page.locator(".panel").nth(1).locator(".sample").nth(1).click()
    page.wait_for_selector(".panel:nth-child(2) .sample:nth-child(2)[aria-pressed=true]")
    assert page.locator(".panel:nth-child(1) .sample:nth-child(1)[aria-pressed=true]").count() == 1
    page.evaluate("location.hash = encodeURIComponent(JSON.stringify('p39'))")  # in the first file only
    page.wait_for_selector("text=Not in this file.")


def test_hacking_cases_and_training_dumps(show: Show) -> None:
    page = show([hacking_case(number // 2, number == 0) for number in range(6)])
    option(page, "category", "hard-coded")
    assert count_of(page) == "1 of 3 problems, 2 trajectories, 1 match"
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn")
    assert page.locator(".turn h4").first.inner_text().startswith("Turn 1")
    assert "wrong on purpose" in page.locator(".test").first.inner_text()
    page = show([dumped(turn, score) for turn, score in ((0, 0.2), (1, 1.0), (1, -0.1))])
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn")
    assert "correct 0.2" in page.inner_text(".scores")


def test_a_list_of_thousands_draws_what_is_seen_also_on_a_narrow_screen(show: Show) -> None:
    page = show([{**hacking_case(number, False), "id": number} for number in range(5000)], size=(380, 700))
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.keyboard.press("End")
    page.wait_for_selector("#row-4999")
    assert page.locator("#rows .row").count() < 100
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_a_difference_is_one(show: Show) -> None:
    """Its lines without the added ones are the first program, without the removed ones the second."""
    page, generator = show(BASE[:1]), random.Random(0)
    pairs = [[[generator.choice("abc") for _ in range(generator.randrange(9))] for _ in range(2)] for _ in range(300)]
    for (first, second), changes in zip(
        pairs, page.evaluate("(p) => p.map(([a, b]) => differenceOf(a, b))", pairs), strict=True
    ):
        assert [line for sign, line in changes if sign != "+"] == first
        assert [line for sign, line in changes if sign != "-"] == second
    changes = page.evaluate("differenceOf(['x', 'd'], ['a', 'x', 'c'])")
    assert changes == [["+", "a"], [" ", "x"], ["-", "d"], ["+", "c"]]
