"""Offline baselines: which stored answers they take, what the network reads, and what a training does to it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from cobalt.bandit.builder import BanditConfig, plan_problem
from cobalt.bandit.evaluated import parse_problem
from cobalt.prompts import feedback_message, first_messages
from cobalt.records import write_jsonl
from research.offline.examples import read_examples
from research.offline.train import OfflineConfig, Row, encode, load, losses, main, margins, response_log_probs

MINICODER = str(Path(__file__).parents[3] / "assets" / "minicoder")
TESTS = json.dumps({"inputs": ["1", "2"], "outputs": ["1", "2"]})
PUBLIC = json.dumps({"inputs": ["1"], "outputs": ["1"]})
QUESTION = "Read one integer. Print it."


def answer(name: str) -> str:
    return f"<think>{name}</think>\n```python\nprint({name})\n```"


def problem(
    id_: str, histories_NT: list[str], rates_NT: list[list[float | None]], ends: str = "stop"
) -> dict[str, Any]:
    """An evaluated row. Each letter of a history is a program; its raw response also tells trajectory and turn."""
    turns = range(len(histories_NT[0]))
    row = {"id": id_, "test_cases": TESTS, "public_test_cases": PUBLIC, "conversations": [], "all_pass_rates": rates_NT}
    for history in histories_NT:
        messages = first_messages(f"{QUESTION} {id_}")
        for program in history:
            messages += [{"role": "assistant", "content": program}, feedback_message(f"Input:\n{program}")]
        row["conversations"].append(messages)
    ends_N = [ends, *["stop"] * (len(histories_NT) - 1)]  # at turn 0
    row["raw_responses"] = [[answer(f"{id_}{n}{turn}") for n in range(len(histories_NT))] for turn in turns]
    row["usage"] = [[{"finish_reason": "stop" if turn else end} for end in ends_N] for turn in turns]
    row["public_pass_rates"] = [[rates[turn] for rates in rates_NT] for turn in turns]
    return row


def write_files(folder: Path, *rows: dict[str, Any]) -> tuple[Path, Path]:
    """The contexts that process_multi_turn_taco.py makes of ``rows``, but for their order, and ``rows``."""
    contexts, trajectories = folder / "contexts.jsonl", folder / "trajectories.jsonl"
    write_jsonl(trajectories, rows)
    plans = [plan_problem(parse_problem(row), BanditConfig(stop_rule="none")) for row in rows]
    write_jsonl(contexts, (c.to_record() for plan in plans for contexts_C in plan.contexts_NC for c in contexts_C))
    return contexts, trajectories


def taken(folder: Path, *rows: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    return [(each.passing, each.failing) for each in read_examples(*write_files(folder, *rows))[0]]


def test_a_context_takes_the_first_passing_and_the_first_failing_answer_to_its_messages(tmp_path: Path) -> None:
    # After the program a, both trajectories were shown the same: one failed then, the other passed.
    row = problem("p", ["ax", "ay", "bz"], [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    contexts = [record["turn"] for record in map(json.loads, write_files(tmp_path, row)[0].read_text().splitlines())]
    assert contexts == [0, 1, 2]
    assert taken(tmp_path, row) == [
        (answer("p20"), answer("p00")),
        (answer("p11"), answer("p01")),
        (None, None),  # after the last turn nothing is stored
    ]


def test_answers_that_were_cut_off_or_have_no_verdict_are_left_out(tmp_path: Path) -> None:
    rates = [[0.0, 0.0], [None, None], [0.0, 1.0]]
    assert taken(tmp_path, problem("p", ["ax", "by", "cz"], rates))[0] == (None, answer("p00"))
    assert taken(tmp_path, problem("p", ["ax", "by", "cz"], rates, ends="length"))[0] == (None, answer("p20"))


@pytest.fixture(scope="module")
def base() -> Any:
    model, tokenizer = load(MINICODER)
    messages = first_messages(QUESTION)
    return model.eval(), [encode(tokenizer, messages, text) for text in (answer("1"), answer("int(input())"))]


def log_prob(model: Any, prompt: list[int], response: list[int]) -> torch.Tensor:
    """Of each token, one after the other."""
    logits = model(torch.tensor([prompt + response], device=model.device)).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[torch.arange(len(response)), response]


def test_log_probabilities_are_those_without_padding(base: Any) -> None:
    model, (short, long) = base
    for found, (prompt, response) in zip(response_log_probs(model, [short, long]), (short, long), strict=True):
        assert torch.allclose(found, log_prob(model, prompt, response), atol=1e-4)


def test_losses_are_a_token_s_cross_entropy_and_a_pair_s_preference(base: Any) -> None:
    model, (passing, failing) = base
    with torch.no_grad():
        found = losses(model, [Row([passing]), Row([failing])], beta=9.0)
        assert len(found) == len(passing[1]) + len(failing[1])
        assert torch.allclose(found[: len(passing[1])], -log_prob(model, *passing), atol=1e-4)

        margin = (log_prob(model, *passing).sum() - log_prob(model, *failing).sum()).item()
        assert margins(model, [Row([passing, failing])]).item() == pytest.approx(margin, abs=1e-2)
        pairs = [Row([passing, failing], margin), Row([passing, failing], margin - 3)]
        expected = [math.log(2), math.log(1 + math.exp(-0.3))]
        assert losses(model, pairs, beta=0.1).tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("method", ["rft", "dpo"])
def test_training_learns_its_answers_and_is_repeatable(tmp_path: Path, method: str) -> None:
    contexts, trajectories = write_files(tmp_path, *(problem(p, ["a", "b"], [[1.0], [0.0]]) for p in "pqrs"))

    def trained(name: str, **changed: Any) -> Path:
        flags = {"method": method, "contexts": contexts, "trajectories": trajectories, "model": MINICODER}
        flags |= {"output_dir": tmp_path / name, "learning_rate": 3e-4, "epochs": 4, "batch_size": 2}
        main(OfflineConfig(**{**flags, **changed}))
        return tmp_path / name

    folder = trained("out")
    weights = [(each / "model.safetensors").read_bytes() for each in (folder, trained("again"), trained("b", seed=1))]
    assert weights[0] == weights[1] != weights[2]
    counts = json.loads((tmp_path / "out.manifest.json").read_text())["counts"]
    assert (counts["rows"], counts["steps"]) == (4, {"rft": 8, "dpo": 16}[method])

    tokenizer = load(MINICODER)[1]
    examples = read_examples(contexts, trajectories)[0]
    pairs = [
        [encode(tokenizer, each.messages, str(text)) for text in (each.passing, each.failing)] for each in examples
    ]
    with torch.no_grad():
        before, after = (load(str(model))[0].eval() for model in (MINICODER, folder))
        assert (margins(after, [Row(pair) for pair in pairs]) > margins(before, [Row(pair) for pair in pairs])).all()
        if method == "rft":
            rows = [Row(pair[:1]) for pair in pairs]
            assert losses(after, rows, 0).mean() < losses(before, rows, 0).mean() - 0.5


def test_held_out_problems_are_measured_and_not_trained_on(tmp_path: Path) -> None:
    contexts, trajectories = write_files(tmp_path, *(problem(p, ["a", "b"], [[1.0], [0.0]]) for p in "pqrstuvw"))
    flags = {"method": "dpo", "contexts": contexts, "trajectories": trajectories, "model": MINICODER}
    flags |= {"learning_rate": 1e-4, "batch_size": 8}
    main(OfflineConfig(**flags, output_dir=tmp_path / "half", held_out=0.5))  # type: ignore[arg-type]
    counts = json.loads((tmp_path / "half.manifest.json").read_text())["counts"]
    assert counts["rows"] + counts["rows held out"] == 8 and 0 < counts["rows"] < 8
    assert counts["held out, before"]["loss"] == pytest.approx(math.log(2), abs=1e-3)
    assert counts["held out"]["loss"] < counts["held out, before"]["loss"] and counts["held out"]["accuracy"] == 1
