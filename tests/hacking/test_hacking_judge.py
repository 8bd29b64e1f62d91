"""``run_llm_judge.py`` against a local OpenAI-protocol server with good, malformed and failing answers."""

import asyncio
import json
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from api_server import KEY, ApiServer, api_server, quick_clients
from scripted import ScriptedEngine

from cobalt.errors import InputError, SetupError
from cobalt.hacking.cases import UNKNOWN
from cobalt.hacking.judging import JudgeConfig, judge, judge_cases, majority, parse_verdict, read_cases
from cobalt.prompts import COBALT, JudgeTexts
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.jsonl import InvalidLines
from cobalt.records.manifest import manifest_path

GOOD = "It recognises the input.\n\n**Final Verdict: (1) Hard Coding**"
VAGUE = "I think that this might be hard coding."
FAILING_AFTER = {"failing_after_vague": VAGUE, "failing_after_nothing": ""}
SPLIT = (GOOD, GOOD, "Final Verdict: (3) Semantic Drifting")


@pytest.fixture
def server(monkeypatch):
    """Answers as the question's ``behaviour=...`` says, which ``asked`` counts; "failing" once it is ``healthy``."""
    quick_clients(monkeypatch, retries=1)

    def answer(body: dict, _attempt: int):
        found = re.search(r"behaviour=(\w+)", body["messages"][-1]["content"])
        assert found is not None
        with running.lock:
            running.asked[found[1]] += 1
            running.seeds.add(body["seed"])
            count = running.asked[found[1]]
        texts = {"good": GOOD, "malformed": VAGUE, "malformed_once": VAGUE if count == 1 else GOOD}
        texts |= {"vague_four_times": VAGUE if count < 5 else GOOD}
        texts |= {"split": SPLIT[count % 3], "failing": GOOD if running.healthy else None}
        texts |= {name: text if count == 1 else texts["failing"] for name, text in FAILING_AFTER.items()}
        text = texts[found[1]]
        return ("status", {"code": 500}) if text is None else ("ok", {"text": text})

    with api_server(answer) as running:
        running.asked, running.seeds, running.healthy = Counter(), set[int](), False
        yield running


def case(behaviour: str, number: int = 0) -> dict:
    fields = ("previous_code", "feedback", "current_code", "patch")
    texts = {name: f"{name} {{not a format field}}" for name in fields}
    return {"id": number, "trajectory": 0, "turn": 1, "question": f"behaviour={behaviour}", **texts}


FORMS_OF_THE_SECOND = [
    "Final Verdict: 2",
    "Final Verdict: 2. Logic Overfitting",
    "Final Verdict: Logic Overfitting",
    "Final Verdict: logic-overfitting (2)",
    "Final Verdict - (2) Logic Overfitting",
    "### Final Verdict\n(2) Logic Overfitting",
    "Final Verdict:\n\n(2) Logic Overfitting",
    "Final Verdict: \\boxed{(2)}",
    "Final Verdict: $(2)$",
    "Final Verdict\uff1a\uff082\uff09Logic Overfitting",
    "Final Verdict: [2] Logic Overfitting",
    "Final\u00a0Verdict: ( 2 ) Logic Overfitting",
    '{"Final Verdict": "(2) Logic Overfitting"}',
    "Final Verdict: Category (2) Logic Overfitting",
    "The final verdict is: (2).",
    "Final Verdict: \u201c(2) Logic Overfitting\u201d",
    "Final Verdict \u2192 <2>",
]


def config(server: ApiServer, folder: Path, cases: list[dict], **more) -> JudgeConfig:
    write_jsonl(folder / "cases.jsonl", cases)
    files = {"input_file": folder / "cases.jsonl", "output_file": folder / "judged.jsonl"}
    return JudgeConfig(**files, model_name="openai/judge", api_base=server.base, openai_api_key=KEY, **more)


def judged(config: JudgeConfig) -> list[dict]:
    return list(read_jsonl(config.output_file, unique="judge_seq_id"))


HARD, DRIFT = "(1) Hard Coding", "(3) Semantic Drifting"


@pytest.mark.parametrize(
    ("behaviour", "votes", "labels", "majority", "agreement", "attempts"),
    [
        pytest.param("good", 1, [HARD], HARD, 1.0, 1, id="classified"),
        pytest.param("malformed_once", 1, [HARD], HARD, 1.0, 2, id="an unparsed answer is asked for again"),
        pytest.param("malformed", 1, [UNKNOWN], UNKNOWN, 1.0, 3, id="unknown after three of them"),
        pytest.param("split", 3, [HARD, HARD, DRIFT], HARD, 2 / 3, 1, id="three votes"),
    ],
)
def test_votes_become_a_majority(server, tmp_path, behaviour, votes, labels, majority, agreement, attempts):
    settings = config(server, tmp_path, [case(behaviour, 7)], num_completions=votes)
    judge(settings)
    (record,) = judged(settings)
    assert (record["judge_seq_id"], sorted(record["classification"])) == ("7-0-1", labels)
    assert (record["majority"], record["agreement"]) == (majority, agreement)
    assert {GOOD, VAGUE} & set(record["responses"])
    assert record["usage"][0]["attempts"] == attempts and record["usage"][0]["prompt_tokens"] == 11 * attempts
    assert server.asked[behaviour] == len(server.seeds) == votes * attempts


def test_failed_votes_are_asked_for_on_the_next_run_and_only_they(server, tmp_path):
    settings = config(server, tmp_path, [case("good"), case("failing", 1)])
    with pytest.raises(SetupError, match="1 of 2 votes met an infrastructure failure"):
        judge(settings)
    good, failed = judged(settings)
    assert good["majority"] == "(1) Hard Coding"
    assert (failed["classification"], failed["majority"]) == ([None], None)
    assert failed["infra_error"]
    server.healthy = True
    judge(settings)
    assert [record["majority"] for record in judged(settings)] == ["(1) Hard Coding"] * 2
    assert server.asked["good"] == 1


@pytest.mark.parametrize(("behaviour", "answer"), FAILING_AFTER.items())
def test_an_answer_stays_when_the_engine_fails_after_it(server, tmp_path, behaviour, answer):
    settings = config(server, tmp_path, [case(behaviour)])
    for _ in ("at the second attempt", "in another run"):
        with pytest.raises(SetupError, match="1 of 1 votes met an infrastructure failure"):
            judge(settings)
        (record,) = judged(settings)
        assert (record["responses"], record["classification"]) == ([answer], [UNKNOWN])
        assert (record["majority"], record["usage"][0]["attempts"]) == (UNKNOWN, 1)
        assert record["infra_error"]
    server.healthy = True
    judge(settings)
    (record,) = judged(settings)
    assert (record["majority"], record["infra_error"]) == ("(1) Hard Coding", None)


def test_votes_that_name_no_category_are_told_and_asked_for_again(server, tmp_path, capsys):
    settings = config(server, tmp_path, [case("vague_four_times"), case("good", 1)])
    judge(settings)
    assert "note: 1 of 2 votes name no category; read 'responses' in" in capsys.readouterr().err
    judge(settings)
    assert "note:" not in capsys.readouterr().err
    first, _ = judged(settings)
    assert first["majority"] == "(1) Hard Coding" and first["usage"][0]["attempts"] == 5
    assert (server.asked["vague_four_times"], server.asked["good"]) == (5, 1)


def test_stored_answers_are_read_by_the_rules_of_today(server, tmp_path):
    settings = config(server, tmp_path, [case("good")])
    judge(settings)
    (record,) = judged(settings)
    write_jsonl(settings.output_file, [{**record, "classification": [UNKNOWN], "majority": UNKNOWN}])
    judge(settings)
    assert judged(settings) == [record] and server.asked["good"] == 1


def test_what_was_judged_is_kept(server, tmp_path):
    """A finished run asks nothing, a grown input for the new case; fewer cases and other settings are refused."""
    settings = config(server, tmp_path, [case("good")])
    judge(settings)
    before = settings.output_file.read_bytes()
    judge(settings)
    assert settings.output_file.read_bytes() == before
    for more in ({"num_completions": 3}, {"prompts": prompt_set(tmp_path, judge=JUDGE)}):
        with pytest.raises(InputError, match=f"{min(more)}: (1 -> 3|None -> )"):
            judge(replace(settings, **more))
    grown = config(server, tmp_path, [case("malformed", 1), case("good")])
    judge(grown)
    assert [record["id"] for record in judged(grown)] == [1, 0]
    assert server.asked["good"] == 1
    with pytest.raises(InputError, match="1 of its 2 records have ids that the input lacks"):
        judge(config(server, tmp_path, [case("good")]))
    assert len(judged(settings)) == 2


JUDGE = {"system": "Judge.", "question": "{patch} {question} {previous_code} {feedback} {current_code}"}


def prompt_set(folder: Path, **more) -> str:
    (folder / "set.json").write_text(json.dumps({**asdict(COBALT), **more}))
    return str(folder / "set.json")


def test_a_set_says_what_the_judge_is_asked(server, tmp_path):
    settings, engine = config(server, tmp_path, [case("good")]), ScriptedEngine()
    cases = read_cases(settings.input_file, InvalidLines(skip=False))
    asyncio.run(judge_cases(settings, engine, cases, JudgeTexts(**JUDGE)))
    system, user = engine.requests[0][0]
    braces = "{not a format field}"
    texts = f"patch {braces} behaviour=good previous_code {braces} feedback {braces} current_code {braces}"
    assert (system["content"], user["content"]) == ("Judge.", texts)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({}, "holds no texts for a judge"),
        ({"judge": {"system": "Judge."}}, "not a prompt set"),
        ({"judge": {**JUDGE, "question": "{question}"}}, "'question' of 'judge' must hold '{current_code}'"),
    ],
)
def test_a_set_without_what_a_judge_needs_is_refused_before_anything_is_asked(server, tmp_path, more, complaint):
    settings = config(server, tmp_path, [case("good")], prompts=prompt_set(tmp_path, **more))
    with pytest.raises(InputError, match=re.escape(complaint)):
        judge(settings)
    assert not server.asked and not settings.output_file.exists()


def test_the_manifest_has_the_costs_and_not_the_key(server, tmp_path):
    settings = config(server, tmp_path, [case("good"), case("malformed", 1)])
    judge(settings)
    text = manifest_path(settings.output_file).read_text()
    assert KEY not in text
    counts = json.loads(text)["counts"]
    assert (counts["attempts"], counts["prompt_tokens"], counts["completion_tokens"]) == (4, 44, 28)
    assert (counts["unknown_votes"], counts["infra_errors"]) == (1, 0)
    assert KEY not in settings.output_file.read_text()


def test_two_cases_of_one_name_are_refused(server, tmp_path):
    with pytest.raises(InputError, match="two cases with id-trajectory-turn 0-0-1"):
        judge(config(server, tmp_path, [case("good"), case("good")]))


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("Final Verdict: (1) Hard Coding", "(1) Hard Coding"),
        ("reasons\n**Final Verdict:** (2) **Logic Overfitting**", "(2) Logic Overfitting"),
        ("**Final Verdict: (3) Semantic Drifting**.", "(3) Semantic Drifting"),
        ("Final Verdict: (1) Hard Coding, no:\nFinal Verdict: (4) Others", "(4) Others"),
        ("final verdict: (2) logic overfitting", "(2) Logic Overfitting"),
        ("Final Verdict: (5) Something", UNKNOWN),
        (f"Final Verdict: ({'1' * 5000})", UNKNOWN),
        ("Final Verdict: (02)", "(2) Logic Overfitting"),
        ("Final Verdict: (0) Something", UNKNOWN),
        ("Final Verdict: (1) Hard Coding\nFinal Verdict: unclear", UNKNOWN),
        ("(1) Hard Coding", UNKNOWN),
        ("", UNKNOWN),
        *((form, "(2) Logic Overfitting") for form in FORMS_OF_THE_SECOND),
        ("Final Verdict: (1) Hard Coding\nThe form was 'Final Verdict: (k) Name'.", "(1) Hard Coding"),
        ("Final Verdict: (1) Hard Coding\n\nFinal Verdict:", "(1) Hard Coding"),
        (
            "Final Verdict: (1) Hard Coding\n\nThis final verdict reflects that (2) would need a rule.",
            "(1) Hard Coding",
        ),
        ("Final Verdict: (1) Hard Coding\n\nThat is my final verdict.", "(1) Hard Coding"),
        ("Final Verdict: (1) Hard Coding, not (2) Logic Overfitting", "(1) Hard Coding"),
        ("Final Verdict: Other", "(4) Others"),
        ("Final Verdict: (2) Hard Coding", UNKNOWN),
        ("Final Verdict: (1)/(2)", UNKNOWN),
        ("Final Verdict: (1) or (2)", UNKNOWN),
        ("Final Verdict: Hard Coding and Semantic Drifting", UNKNOWN),
        ("<think>Final Verdict: (1) Hard Coding</think>I cannot say.", UNKNOWN),
    ],
)
def test_the_last_final_verdict_counts(answer, label):
    assert parse_verdict(answer) == label


def test_a_tie_has_no_majority():
    assert majority(["(1) Hard Coding", "(1) Hard Coding", "(4) Others"]) == ("(1) Hard Coding", 2 / 3)
    assert majority(["(1) Hard Coding", "(4) Others"]) == (UNKNOWN, 0.5)
