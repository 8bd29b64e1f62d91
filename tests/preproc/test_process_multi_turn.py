"""The builder's command: records, order, mixing, refusals."""

import json
import re
import weakref
from dataclasses import asdict
from pathlib import Path

import pytest
from commands import manifest_of, one_complaint, read_rows, run_command, write_rows
from evaluated import evaluated
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers_for_tests import CHATML, make_tokenizer

from cobalt.bandit.builder import BanditConfig, cut_overlong, plan_problem
from cobalt.bandit.evaluated import parse_problem
from cobalt.preproc import bandit_prompts
from cobalt.prompts import COBALT, feedback_message, prompt_tokens
from cobalt.records import TestCases

COMMAND = "process_multi_turn_taco"
IMPROVING = [[0.0, 0.5, 1.0], [0.5, 1.0, 0.5], [0.0, 0.0, 0.25], [1.0, 1.0, 1.0]]


def build(rows: list[dict], directory: Path, model: Path, *flags: object) -> list[dict]:
    directory.mkdir(exist_ok=True)
    source = write_rows(directory / "in.jsonl", rows)
    output = directory / "out.jsonl"
    assert run_command(COMMAND, "-i", source, "-o", output, "--model_name", model, *flags) == 0
    return read_rows(output)


def test_records_of_a_released_file_have_the_fields_of_the_format(tmp_path: Path, model: Path) -> None:
    row = evaluated("a", IMPROVING)
    row["public_exec_results"] = [[{"passing": [False], "feedback": ["No code was found."]}] * 4] * 3
    for field in ("hidden_test_cases", "instruction", "question"):
        del row[field]
    records = build([row], tmp_path, model)
    assert sorted(record["turn"] for record in records) == [0, 1, 1, 2, 2, 3, 3]
    for record in records:
        assert {"example_id", "conversation", "test_cases", "difficulty", "prev_best_pass_rate"} <= record.keys()
        assert record["example_id"] == "a" and record["conversation"][-1]["role"] == "user"
        assert len(record["conversation"]) == 2 + 2 * record["turn"]
        assert (record["prev_best_pass_rate"] == 0) or record["turn"] > 0


def test_other_sets_than_the_papers_training_set(tmp_path: Path, model: Path) -> None:
    rows = [evaluated("a", IMPROVING), evaluated("b", [[1.0] * 3] * 4)]
    validation = build(rows, tmp_path / "validation", model, "--is_test")
    assert {(record["example_id"], record["trajectory"]) for record in validation} == {("a", None), ("a", 2)}
    rows = [evaluated("n20", [[i / 4 % 1, 0.5, 1.0] for i in range(20)]), evaluated("n3", IMPROVING[:3])]
    records = build(rows, tmp_path, model, "--max_trajectories", 2, "--num_turns", 2)
    assert len({r["trajectory"] for r in records if r["example_id"] == "n20" and r["turn"] > 0}) == 2
    assert max(record["turn"] for record in records) == 2
    shortest = build(rows[1:], tmp_path / "short", model, "--max_prompt_tokens", 1)
    assert [record["turn"] for record in shortest] == [0], "the first prompt is never too long"
    assert build(rows[1:], tmp_path / "long", model)
    all_counts, counts = (manifest_of(tmp_path / name / "out.jsonl")["counts"] for name in ("long", "short"))
    assert all_counts["contexts_too_long"] == 0
    assert counts["contexts_too_long"] == sum(all_counts["contexts"].values()) - sum(counts["contexts"].values()) > 0
    assert counts["trajectories"]["with contexts"] == 0 < all_counts["trajectories"]["with contexts"]


def test_a_text_that_no_tokenizer_takes_is_told_with_its_line(tmp_path: Path, model: Path, capsys) -> None:
    context, stored = evaluated("a", IMPROVING), answered("a", ["xy"], [[0.0, 1.0]])
    context["conversations"][0][1]["content"] += "\ud83d"
    stored["raw_responses"][1][0] = "```python\nprint('\ud800')\n```"
    flags = ("-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model_name", model)
    for row, purpose in ((context, "grpo"), (stored, "rft")):
        write_rows(tmp_path / "in.jsonl", [row])
        assert run_command(COMMAND, *flags, "--for", purpose) == 2
        assert "in.jsonl: line 1: a text cannot be written as UTF-8" in one_complaint(capsys)


def test_a_share_of_the_contexts_keeps_a_solution(tmp_path: Path, model: Path) -> None:
    rows = [evaluated("a", IMPROVING), evaluated("b", [[0.0, 0.5, 1.0]] * 4)]
    everything = build(rows, tmp_path / "all", model)
    records = build(rows, tmp_path / "few", model, "--keep", 0.2)
    assert [sum(record["prev_best_pass_rate"] == 1 for record in kind) for kind in (everything, records)] == [7, 3]
    assert len(records) == len(everything) - 7 + 3
    assert (
        manifest_of(tmp_path / "few" / "out.jsonl")["content"]["keep"] == 0.2
        and "keep" not in manifest_of(tmp_path / "all" / "out.jsonl")["content"]
    )


def test_infra_nulls_are_dropped_and_counted(tmp_path: Path, model: Path) -> None:
    rows = [evaluated("a", [*IMPROVING, [None, 1.0, 1.0]]), evaluated("b", [[None, None, None]])]
    records = build(rows, tmp_path, model)
    assert {record["trajectory"] for record in records} == {None, 0, 1}
    counts = manifest_of(tmp_path / "out.jsonl")["counts"]
    assert counts["trajectories"]["dropped: infra error"] == 2
    assert counts["problems"] == {"dropped: every trajectory has an infra error": 1, "kept": 1}


@given(
    rates=st.lists(st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 1.0])] * 3), min_size=1, max_size=6), max_size=4),
    limit=st.integers(150, 400),
)
@settings(max_examples=8, deadline=None)
def test_same_records_as_counting_every_prompt_from_scratch(tmp_path_factory, model, rates, limit: int) -> None:
    directory = tmp_path_factory.mktemp("scratch")
    rows = [evaluated(i, hidden_NT) for i, hidden_NT in enumerate([*rates, [[0.0, 0.0, 0.0]]])]
    records = build(rows, directory, model, "--max_prompt_tokens", limit)
    tokenizer, expected = make_tokenizer(), []
    for row in rows:
        for contexts_C in plan_problem(parse_problem(row), BanditConfig()).contexts_NC:
            rendered = [prompt_tokens(tokenizer, c.conversation) for c in contexts_C]
            expected += [c.to_record() for c in cut_overlong(contexts_C, list(map(len, rendered)), limit)]
    assert sorted(map(json.dumps, records)) == sorted(map(json.dumps, expected))


def test_same_seed_same_bytes_whatever_the_batch(tmp_path: Path, model: Path, monkeypatch) -> None:
    rows = [evaluated(i, IMPROVING) for i in range(7)]
    outputs = []
    for batch, seed in ((64, 42), (1, 42), (3, 42), (64, 43)):
        monkeypatch.setattr(bandit_prompts, "BATCH_PROBLEMS", batch)
        build(rows, tmp_path / f"{batch}-{seed}", model, "--seed", seed)
        outputs.append((tmp_path / f"{batch}-{seed}" / "out.jsonl").read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0] != outputs[3] and sorted(outputs[0].splitlines()) == sorted(outputs[3].splitlines())


def test_memory_holds_few_problems_whatever_the_size_of_the_file(tmp_path: Path, model: Path, monkeypatch) -> None:
    seen: list[weakref.ref] = []
    alive: list[int] = []

    def spy(*args, **kwargs):
        problem = parse_problem(*args, **kwargs)
        seen.append(weakref.ref(problem))
        alive.append(sum(reference() is not None for reference in seen))
        return problem

    monkeypatch.setattr(bandit_prompts, "BATCH_PROBLEMS", 4)
    monkeypatch.setattr(bandit_prompts, "parse_problem", spy)
    build([evaluated(i, IMPROVING) for i in range(40)], tmp_path, model)
    assert len(seen) == 40 and max(alive) <= 2 * 4


def test_perturbed_contexts_make_the_asked_share_with_clean_tests(tmp_path: Path, model: Path) -> None:
    clean = [evaluated(i, IMPROVING) for i in range(4)]
    wrong = [
        evaluated(i, IMPROVING, public_NT=[[0.0] * 3] * 4, clean_public_pass_rates=list(zip(*IMPROVING, strict=True)))
        for i in range(4)
    ]
    perturbed = write_rows(tmp_path / "perturbed.jsonl", wrong)
    records = build(clean, tmp_path, model, "--perturbed_file", perturbed, "--perturbed_ratio", 0.25)
    mixed_in = [record for record in records if record["perturbed"]]
    assert len(mixed_in) == round(len(records) * 0.25)
    assert all(record["turn"] > 0 for record in mixed_in)
    assert {record["test_cases"] for record in records} == {clean[0]["test_cases"]}
    assert max(record["prev_best_pass_rate"] for record in mixed_in) == 1
    mixed = ("--perturbed_file", perturbed, "--perturbed_ratio", 0.25, "--keep", 0)
    records = build(clean, tmp_path / "repair", model, *mixed)
    assert max(record["prev_best_pass_rate"] for record in records if not record["perturbed"]) == 0.5
    assert len(records) * 0.25 == pytest.approx(sum(record["perturbed"] for record in records), abs=1)


UNSOLVED = evaluated("a", [[0.0, 0.5, 0.0]], clean_public_pass_rates=[[0.0], [0.5], [0.0]])


@pytest.mark.parametrize(
    ("row", "flags", "complaint"),
    [
        (evaluated("a", IMPROVING), ["--perturbed_file", "ptb", "--perturbed_ratio", 0.5], "give no context"),
        (evaluated("a", [[1.0, 1.0, 1.0]]), [], "give no context"),
        (evaluated("a", IMPROVING), ["--perturbed_ratio", 0.5], "--perturbed_file"),
        ({}, ["--perturbed_file", "ptb", "--perturbed_ratio", 1.5], "--perturbed_ratio"),  # before anything is read
        ({}, ["--num_turns", 0], "--num_turns"),
        ({}, ["--answers", 2], "--for rft"),
    ],
)
def test_what_gives_no_set_is_refused(tmp_path: Path, model: Path, capsys, monkeypatch, row, flags, complaint) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "ptb", [UNSOLVED])
    source = write_rows(tmp_path / "in.jsonl", [row])
    assert run_command(COMMAND, "-i", source, "-o", tmp_path / "out", "--model_name", model, *flags) == 2
    assert complaint in one_complaint(capsys) and not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("shares", [(), ("--keep", 0)])
def test_the_table_adds_up(tmp_path: Path, model: Path, capsys, shares) -> None:
    rows = [evaluated("a", IMPROVING * 6), evaluated("b", [[1.0, 1.0, 1.0]] * 2)]
    build(rows, tmp_path, model, "--stats", *shares)
    said, tokens = re.subn(r" \(tokens p50 / p90 / max: \d+ / \d+ / \d+\)", "", capsys.readouterr().out)
    rows = [re.split(r"\s{2,}", line.replace("│", "  ").strip()) for line in said.splitlines()]
    of = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
    read = of.pop("trajectories read")
    assert (
        read == 6 * len(IMPROVING) + 2 == sum(number for name, number in of.items() if name.startswith("trajectories"))
    )
    contexts = [number for name, number in of.items() if name.startswith("contexts")]
    left_out = of.get("records left out for --keep, --perturbed_ratio", 0)
    assert len(contexts) == tokens > 1 and sum(contexts) == of["records written"] + left_out
    assert (left_out > 0) == bool(shares)


def ragged() -> dict:
    row = evaluated("odd", IMPROVING * 4)
    return {**row, "conversations": row["conversations"][:3]}


@pytest.mark.parametrize(
    ("row", "flags", "complaint"),
    [
        (ragged(), [], "in.jsonl: line 2: problem 'odd': field 'public_pass_rates'[0]"),
        (evaluated(1, IMPROVING), ["--num_turns", 1], "num_turns: 3 -> 1"),
    ],
)
def test_a_refused_run_leaves_the_output_as_it_was(tmp_path: Path, model: Path, capsys, row, flags, complaint) -> None:
    build([evaluated(i, IMPROVING) for i in range(2)], tmp_path, model)
    before = {path: path.read_bytes() for path in tmp_path.glob("out*")}
    source = write_rows(tmp_path / "in.jsonl", [evaluated(0, IMPROVING), row])
    flags = ("-i", source, "-o", tmp_path / "out.jsonl", "--model_name", model, *flags)
    assert run_command(COMMAND, *flags) == 2
    assert complaint in one_complaint(capsys)
    assert {path: path.read_bytes() for path in tmp_path.glob("out*")} == before


def test_invalid_problems_may_be_skipped(tmp_path: Path, model: Path) -> None:
    records = build([evaluated("fine", IMPROVING * 4), ragged()], tmp_path, model, "--skip_invalid")
    assert {record["example_id"] for record in records} == {"fine"}
    assert manifest_of(tmp_path / "out.jsonl")["counts"]["invalid_lines_skipped"] == 1


def test_the_model_is_by_default_that_of_the_manifest(tmp_path: Path, model: Path, capsys) -> None:
    source = write_rows(tmp_path / "in.jsonl", [evaluated("a", IMPROVING)])
    flags = ("--input_file", source, "--output_file", tmp_path / "out.jsonl")
    assert run_command(COMMAND, *flags) == 2
    assert "--model_name is needed" in one_complaint(capsys)
    assert run_command(COMMAND, "-i", tmp_path / "none.jsonl", "-o", tmp_path / "out.jsonl") == 2
    assert "none.jsonl: no such file (--input_file)" in one_complaint(capsys)
    origin = {"model": str(model), "model_id": "another@1", "checker": "exact"}
    Path(f"{source}.manifest.json").write_text(json.dumps({"origin": origin}))
    assert run_command(COMMAND, *flags) == 0 and "note:" not in capsys.readouterr().err
    assert run_command(COMMAND, *flags, "--model_name", model) == 0
    assert re.search(rf"note: the model is \S+ here, and was another@1 where {source}", capsys.readouterr().err)


def test_public_tests_may_be_left_out_of_the_reward(tmp_path: Path, model: Path) -> None:
    """Hidden rates 0 and 0.5 with public ones 1 and 0: over all eight tests 0.5 and 0.25."""
    row = evaluated("a", [[0.0, 0.5, 1.0]] * 2, [[1.0, 0.0, 1.0]] * 2)

    def best_before(records: list[dict]) -> dict[int, float]:
        return {record["turn"]: record["prev_best_pass_rate"] for record in records}

    assert best_before(build([row], tmp_path / "all", model)) == {0: 0, 1: 0.5, 2: 0.5, 3: 1.0}
    records = build([row], tmp_path, model, "--reward_tests", "hidden")
    assert best_before(records) == {0: 0, 1: 0.0, 2: 0.5, 3: 1.0}
    assert {record["test_cases"] for record in records} == {row["hidden_test_cases"]}


def test_a_share_of_the_problems_may_have_one_test_for_the_reward(tmp_path: Path, model: Path) -> None:
    """The contexts are the same ones; the test is the first public one, or the first that no feedback shows."""
    rows = [evaluated(i, IMPROVING) for i in range(20)]
    strong = build(rows, tmp_path / "strong", model)
    records = build(rows, tmp_path, model, "--weak_tests", 0.5)
    assert [{**record, "test_cases": ""} for record in records] == [{**record, "test_cases": ""} for record in strong]
    tests = {record["example_id"]: record["test_cases"] for record in records}
    assert all(record["test_cases"] == tests[record["example_id"]] for record in records)
    first = TestCases.parse(rows[0]["public_test_cases"]).select([0])
    weak = [TestCases.parse(text) == first for text in tests.values()]
    assert set(tests.values()) == {rows[0]["test_cases"], first.to_json()} and 5 <= sum(weak) <= 15
    assert manifest_of(tmp_path / "out.jsonl")["content"]["weak_tests"] == 0.5
    assert "weak_tests" not in manifest_of(tmp_path / "strong" / "out.jsonl")["content"]
    hidden = build(rows, tmp_path / "hidden", model, "--weak_tests", 1, "--reward_tests", "hidden")
    assert {record["test_cases"] for record in hidden} == {
        TestCases.parse(rows[0]["hidden_test_cases"]).select([0]).to_json()
    }


def test_the_expected_output_may_be_hidden_in_contexts(tmp_path: Path, model: Path) -> None:
    records = build([evaluated("a", IMPROVING)], tmp_path, model, "--hide_expected")
    feedback = [m["content"] for record in records for m in record["conversation"][3::2]]
    assert any("\nInput:\n0" in text for text in feedback) and any("passed all public" in text for text in feedback)
    assert not any("Expected Output" in text for text in feedback)
    shown = build([evaluated("a", IMPROVING)], tmp_path / "all", model)
    assert any("Expected Output" in record["conversation"][-1]["content"] for record in shown)
    assert [record["turn"] for record in shown] == [record["turn"] for record in records]


def test_prompts_are_measured_as_they_are_served(tmp_path: Path) -> None:
    make_tokenizer(f"{CHATML}{{{{ end }}}}").save_pretrained(tmp_path)
    flags, turns = ("--max_prompt_tokens", 1000, "--apply_chat_template_kwargs"), []
    for name, end in (("short", ""), ("long", "a b " * 1000)):
        records = build([evaluated("a", IMPROVING)], tmp_path / name, tmp_path, *flags, json.dumps({"end": end}))
        turns.append({record["turn"] for record in records})
    assert turns == [{0, 1, 2, 3}, {0}]
    contents = [manifest_of(tmp_path / name / "out.jsonl")["content"]["tokenizer"] for name in ("short", "long")]
    assert contents[0] != contents[1]


def test_no_text_of_the_prompt_set_is_hidden_with_it(tmp_path: Path, model: Path, capsys) -> None:
    source = write_rows(tmp_path / "in.jsonl", [evaluated("a", IMPROVING)])
    prompts = {**asdict(COBALT), "feedback": f"{COBALT.feedback}\nNow go on."}
    (tmp_path / "set.json").write_text(json.dumps(prompts))
    flags = ("-i", source, "-o", tmp_path / "out.jsonl", "--model_name", model, "--prompts", tmp_path / "set.json")
    assert run_command("process_multi_turn_taco", *flags, "--hide_expected") == 2
    assert "--hide_expected: it would also hide the text" in one_complaint(capsys)


def answer(name: str) -> str:
    return f"<think>{name}</think>\n```python\nprint({name})\n```"


def answered(id_: str, histories_NT: list[str], rates_NT: list[list[float | None]], first_ends: str = "stop") -> dict:
    """An evaluated row. Each letter of a history is a program; its raw response also tells trajectory and turn."""
    row, turns = evaluated(id_, rates_NT), range(len(histories_NT[0]))
    for messages, history in zip(row["conversations"], histories_NT, strict=True):
        for turn, program in enumerate(history):
            messages[2 + 2 * turn]["content"] = program
            messages[3 + 2 * turn] = feedback_message(f"Input:\n{program}")
    row["raw_responses"] = [[answer(f"{id_}{n}{turn}") for n in range(len(histories_NT))] for turn in turns]
    ends_N = [first_ends, *["stop"] * (len(histories_NT) - 1)]  # at turn 0
    row["usage"] = [[{"finish_reason": "stop" if turn else end} for end in ends_N] for turn in turns]
    return row


# After the program a, two trajectories were shown the same: the first failed then, the others passed.
HISTORIES, RATES = ["ax", "ay", "bz", "az"], [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0]]


def test_a_context_takes_passing_and_failing_answers_to_its_messages(tmp_path: Path, model: Path) -> None:
    row, flags = answered("p", HISTORIES, RATES), ("--stop_rule", "none")
    found = build([row], tmp_path / "rft", model, "--for", "rft", *flags)
    taken = sorted((record["turn"], record["trajectory"] or 0, record["response"]) for record in found)
    # of the contexts of both trajectories after a; those after the last turn have no answer
    assert taken == [(0, 0, answer("p20")), (1, 1, answer("p11")), (1, 3, answer("p11"))]
    counts = manifest_of(tmp_path / "rft" / "out.jsonl")["counts"]
    assert (counts["contexts_without_answers"], counts["records_written"]) == (2, 3)

    found = build([row], tmp_path / "more", model, "--for", "rft", "--answers", 9, *flags)
    later = [record["response"] for record in found if record["turn"] == 1]
    assert set(later) == {answer("p11"), answer("p31")} and len(later) == 4

    pairs = build([row], tmp_path / "dpo", model, "--for", "dpo", "--answers", 2, *flags)
    first = [(pair["chosen"], pair["rejected"]) for pair in pairs if pair["turn"] == 0]
    assert first == [(answer("p20"), answer("p00"))]


def test_answers_that_were_cut_off_or_have_no_verdict_are_left_out(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = [[0.0, 0.0], [None, None], [0.0, 1.0]]
    pairs = build([answered("p", ["ax", "ay", "ay"], rates)], tmp_path / "null", model, "--for", "dpo")
    later = [(pair["chosen"], pair["rejected"]) for pair in pairs if pair["turn"] == 1]
    assert later == [(answer("p21"), answer("p01"))]

    source = write_rows(tmp_path / "in.jsonl", [answered("p", ["ax", "by"], [[1.0, 0.0], [0.0, 0.0]], "length")])
    flags = ("--model_name", model, "--for", "rft")
    assert run_command(COMMAND, "-i", source, "-o", tmp_path / "out.jsonl", *flags) == 2
    assert one_complaint(capsys).endswith("no context has a stored passing answer")
