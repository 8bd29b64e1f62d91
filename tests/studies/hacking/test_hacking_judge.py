"""``run_llm_judge.py`` against a local OpenAI-protocol server with good, malformed and failing answers."""

import asyncio
import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from judge_server import GOOD, VAGUE, JudgeServer, judge_server

sys.path.insert(0, str(Path(__file__).parents[2] / "inference"))
from cobalt.serving.retries import RetryConfig
from scripted import ScriptedEngine

from cobalt.errors import InputError, SetupError
from cobalt.prompts import COBALT
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.jsonl import InvalidLines
from cobalt.records.manifest import manifest_path
from studies.hacking.cases import UNKNOWN
from studies.hacking.judging import JudgeConfig, judge, judge_cases, majority, parse_verdict, read_cases

KEY = "sk-never-to-be-written"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("cobalt.inference.litellm_api.RetryConfig", lambda: RetryConfig(attempts=2, first_wait_s=0.01))
    with judge_server() as running:
        yield running


def case(behaviour: str, number: int = 0) -> dict:
    fields = ("previous_code", "feedback", "current_code", "patch")
    texts = {name: f"{name} {{not a format field}}" for name in fields}
    return {"id": number, "trajectory": 0, "turn": 1, "question": f"behaviour={behaviour}", **texts}


def config(server: JudgeServer, folder: Path, cases: list[dict], **more) -> JudgeConfig:
    write_jsonl(folder / "cases.jsonl", cases)
    return JudgeConfig(
        input_file=folder / "cases.jsonl",
        output_file=folder / "judged.jsonl",
        model_name="openai/judge",
        api_base=server.url,
        openai_api_key=KEY,
        **more,
    )


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
    assert record["responses"][0] in (GOOD, VAGUE) or votes == 3
    assert record["usage"][0]["attempts"] == attempts and record["usage"][0]["prompt_tokens"] == 100 * attempts
    assert server.asked[behaviour] == votes * attempts


def test_fewer_cases_delete_no_votes(server, tmp_path):
    judge(config(server, tmp_path, [case("good"), case("good", 1)]))
    settings = config(server, tmp_path, [case("good")])
    with pytest.raises(InputError, match="1 of its 2 records have ids that the input lacks"):
        judge(settings)
    assert len(judged(settings)) == 2


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


def test_a_finished_run_asks_nothing(server, tmp_path):
    settings = config(server, tmp_path, [case("good")])
    judge(settings)
    before = settings.output_file.read_bytes()
    judge(settings)
    assert server.asked["good"] == 1
    assert settings.output_file.read_bytes() == before


def test_an_input_that_grew_keeps_what_was_judged(server, tmp_path):
    judge(config(server, tmp_path, [case("good")]))
    grown = config(server, tmp_path, [case("malformed", 1), case("good")])
    judge(grown)
    assert [record["id"] for record in judged(grown)] == [1, 0]
    assert server.asked["good"] == 1


def test_another_number_of_votes_is_refused(server, tmp_path):
    settings = config(server, tmp_path, [case("good")])
    judge(settings)
    with pytest.raises(InputError, match="num_completions: 1 -> 3"):
        judge(replace(settings, num_completions=3))


JUDGE = {"system": "Judge.", "question": "{patch} {question} {previous_code} {feedback} {current_code}"}


def prompt_set(folder: Path, **more) -> str:
    (folder / "set.json").write_text(json.dumps({**asdict(COBALT), **more}))
    return str(folder / "set.json")


def test_a_set_says_what_the_judge_is_asked(server, tmp_path):
    settings = config(server, tmp_path, [case("good")], prompts=prompt_set(tmp_path, judge=JUDGE))
    engine = ScriptedEngine()
    asyncio.run(judge_cases(settings, engine, read_cases(settings.input_file, InvalidLines(skip=False))))
    system, user = engine.requests[0][0]
    braces = "{not a format field}"
    texts = f"patch {braces} behaviour=good previous_code {braces} feedback {braces} current_code {braces}"
    assert (system["content"], user["content"]) == ("Judge.", texts)


def test_answers_to_other_words_are_not_resumed(server, tmp_path):
    settings = config(server, tmp_path, [case("good")])
    judge(settings)
    with pytest.raises(InputError, match="prompts: None -> "):
        judge(replace(settings, prompts=prompt_set(tmp_path, judge=JUDGE)))


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
    assert (counts["attempts"], counts["prompt_tokens"], counts["completion_tokens"]) == (4, 400, 80)
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
        ("Final Verdict: (0) Something", UNKNOWN),
        ("Final Verdict: (1) Hard Coding\nFinal Verdict: unclear", UNKNOWN),
        ("(1) Hard Coding", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_the_last_final_verdict_counts(answer, label):
    assert parse_verdict(answer) == label


def test_a_tie_has_no_majority():
    assert majority(["(1) Hard Coding", "(1) Hard Coding", "(4) Others"]) == ("(1) Hard Coding", 2 / 3)
    assert majority(["(1) Hard Coding", "(4) Others"]) == (UNKNOWN, 0.5)
