"""The probes on stand-ins of a policy, of which it is known whether they use their thinking and the feedback."""

import asyncio
import itertools
import json
import random
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from cobalt.completion import Completion
from cobalt.errors import InputError
from cobalt.prompts import first_messages, prompt_tokens
from cobalt.records import read_jsonl, write_jsonl
from studies.minicode.pretrain import new_network
from studies.minicode.tokenizer import render_prompt, train_tokenizer
from studies.minicode3.changes import change_value
from studies.minicode3.operations import OPERATIONS, Kind
from studies.minicode3.probe import ProbeConfig, main, probe
from studies.minicode3.probe_figures import AGAIN, CONTROL, FOLLOWS, NEITHER, OTHER, OWN, UNCHANGED, summary_rows
from studies.minicode3.problems import look_alike, sample_problem
from studies.minicode3.programs import Variant, plan_of, states_of, step_function, write_program
from studies.minicode3.thinking import Dialogue, Noise, careful_attempt, line_of

CUTS = (0, 10_000, 20)
NEXT = {
    "running_sum": lambda last, x: last + x,
    "sum": lambda last, x: last + x,
    "running_max": max,
    "max": max,
    "min": min,
}
"""The next result of a step's work from the last one."""


class Characters:
    """A tokenizer: every character is a token."""

    def encode(self, text, add_special_tokens):
        return list(text)

    def decode(self, ids):
        return "".join(ids)


def answer(pipeline, thinking=""):
    return f"<think>{thinking}</think>\n```python\n{write_program(pipeline, Variant.SCRIPT)}\n```"


def misread(problem):
    return (look_alike(problem.pipeline[0]), *problem.pipeline[1:])


class Policy:
    """Solves half of the problems at turn 0. ``thinks``: its program is the one of its plan, its values come from those
    before them, it repairs what fails on a test of the problem. If not, its thinking and the feedback change nothing.
    """

    model_id, max_in_flight = "policy", 4

    def __init__(self, problems, thinks):
        self.problems = {problem.instruction: problem for problem in problems}
        self.thinks, self.asked = thinks, 0

    async def generate(self, messages, sampling, seed):
        self.asked += 1
        problem, last = self.problems[messages[1]["content"]], messages[-1]["content"]
        if messages[-1]["role"] == "assistant" and last.endswith("</think>"):
            is_read = all(f": {plan_of(step)}\n" in last for step in problem.pipeline)
            text = answer(problem.pipeline if is_read or not self.thinks else misread(problem)).partition("</think>")[2]
        elif messages[-1]["role"] == "assistant":
            text = self.going_on(problem, last)
        elif len(messages) > 2:
            is_own = any(f"Input:\n{text}\n" in last for text in problem.public.inputs_K)
            text = answer(problem.pipeline if is_own or not self.thinks else misread(problem))
        elif seed % 2:
            noise = Noise(misread=0, doubt=0)
            attempt = careful_attempt(random.Random(0), Dialogue(problem), noise)
            text = answer(problem.pipeline, attempt.thinking + "\n")
        else:
            text = answer(misread(problem), "Plan:\nnone")
        return Completion(text, 1, len(text), "stop")

    def going_on(self, problem, begun):
        """The rest of the run, from what is written or as if nothing had been changed."""
        line = begun.rpartition("\n")[2]
        index = int(line.partition(".")[0]) - 1
        step, later = problem.pipeline[index], problem.pipeline[index + 1 :]
        value = states_of(problem.pipeline, re.findall("Example 1: (.*)", begun)[-1])[index]
        lead = f"{index + 1}. {plan_of(step)}: "
        done = line.removeprefix(lead).removesuffix(",").split(", ")
        work = f"{index + 1}. {line_of(step, value)}".removeprefix(lead).rpartition(" = ")[0].split(", ")
        after = step_function(step)(value)
        if self.thinks:
            texts = [re.split("[ :]", item)[-1] for item in done]
            found = [int(text) if re.fullmatch(r"-?\d+", text) else text for text in texts]
            for place, item in enumerate(value):
                if place < len(done):
                    continue
                if step[0] in NEXT:
                    found.append(NEXT[step[0]](found[-1], item))
                    work[place] = f"{item} {found[-1]}"
                elif isinstance(value, dict):
                    found.append(step_function(step)({item: value[item]})[item])
                elif OPERATIONS[step[0]].kind is Kind.MAP:
                    found.extend(step_function(step)([item]))
                else:
                    found.append({"add_place": item + place + 1, "times_place": item * (place + 1)}[step[0]])
            after = dict(zip(value, found, strict=True)) if isinstance(value, dict) else found
            after = after[-1] if OPERATIONS[step[0]].kind is Kind.FOLD else after
        lines = [f" {', '.join(work[len(done) :])} = {self.shown(after)}"]
        for number, step in enumerate(later, start=index + 2):
            lines.append(f"{number}. {line_of(step, after)}")
            after = step_function(step)(after)
        return "\n".join([*lines, "Expected"])

    @staticmethod
    def shown(value):
        if isinstance(value, dict):
            return " ".join(f"{key}:{value[key]}" for key in value)
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.fixture(scope="module")
def problems():
    rng = random.Random(3)
    sampled = (sample_problem(rng, "dev") for _ in itertools.count())
    return [*itertools.islice((problem for problem in sampled if problem.fully_specified), 12)]


@pytest.fixture(scope="module")
def source(problems, tmp_path_factory):
    rows = []
    for number, problem in enumerate(problems):
        row = {"id": number, "instruction": problem.instruction, "difficulty": "EASY"}
        row |= {f"{name}_test_cases": getattr(problem, name).to_json() for name in ("public", "hidden")}
        rows.append({**row, "test_cases": (problem.public + problem.hidden).to_json()})
    path = tmp_path_factory.mktemp("probe") / "problems.jsonl"
    write_jsonl(path, rows)
    return path


def probed(policy, source, output):
    """The rows of the summary by their names, after the command with this policy."""
    flags = {"input_file": source, "output_file": output, "executor": "local", "num_samples": 2, "cuts": CUTS}
    asyncio.run(probe(ProbeConfig(**flags), Characters(), nullcontext(policy)))
    rows = json.loads(output.with_name(f"{output.name}.summary.json").read_text())["rows"]
    assert rows == summary_rows(read_jsonl(output), CUTS), "all figures come from the records"
    return {(row["probe"], row["row"]): row for row in rows}


@pytest.fixture(scope="module")
def thinker(problems, source, tmp_path_factory):
    output = tmp_path_factory.mktemp("thinker") / "out.jsonl"
    return output, probed(Policy(problems, thinks=True), source, output)


def test_a_policy_that_thinks_needs_its_thinking(thinker):
    _, rows = thinker
    whole, none = rows["thinking", "whole"], rows["thinking", "cut to 0"]
    assert 0.2 < whole["share"]["value"] < 0.8 and none["share"]["value"] == 0
    assert none["difference"]["value"] == -whole["share"]["value"] and none["difference"]["high"] < 0
    assert rows["thinking", "cut to 10000"]["by_problem"] == whole["by_problem"], "nothing is cut"
    assert ("thinking", "longer than 10000: whole") not in rows
    longer = rows["thinking", "longer than 20: cut to 20"]
    assert longer["minus"] == "longer than 20: whole" and longer["responses"] < whole["responses"] == 24
    assert rows["thinking", "longer than 20: whole"]["share"]["value"] == 1 and longer["share"]["value"] == 0


def test_its_values_follow_a_change(thinker):
    _, rows = thinker
    for probe_name in ("values of the step", "values to the end"):
        shares = [rows[probe_name, row]["share"]["value"] for row in (FOLLOWS, UNCHANGED, NEITHER, CONTROL)]
        assert shares == [1, 0, 0, 1] and rows[probe_name, FOLLOWS]["responses"] > 4


def test_it_repairs_by_reading_its_own_feedback(thinker):
    _, rows = thinker
    own, other, again = (rows["repair", row] for row in (OWN, OTHER, AGAIN))
    assert own["share"]["value"] == 1 and other["share"]["value"] == 0 and other["difference"]["high"] == -1
    assert own["by_problem"].keys() == other["by_problem"].keys() == again["by_problem"].keys()
    assert len(own["by_problem"]) > 4 and 0 < again["share"]["value"] < 1


def test_a_policy_that_ignores_both_shows_no_difference(problems, source, tmp_path):
    rows = probed(Policy(problems, thinks=False), source, tmp_path / "out.jsonl")
    for probe_name in ("values of the step", "values to the end"):
        shares = [rows[probe_name, row]["share"]["value"] for row in (FOLLOWS, UNCHANGED, NEITHER, CONTROL)]
        assert shares == [0, 1, 0, 1]
    assert rows["thinking", "longer than 20: cut to 20"]["difference"]["value"] == 0
    assert rows["repair", OTHER]["difference"]["value"] == 0


def test_a_killed_run_asks_for_the_missing_responses_only(problems, source, thinker, tmp_path):
    done = thinker[0].read_bytes().splitlines(keepends=True)
    output = tmp_path / "out.jsonl"
    output.write_bytes(b"".join(done[:30]) + done[30][:40])
    manifest = thinker[0].with_name("out.jsonl.manifest.json").read_text()
    output.with_name("out.jsonl.manifest.json").write_text(manifest)
    policy = Policy(problems, thinks=True)
    assert probed(policy, source, output) == thinker[1]
    assert output.read_bytes() == thinker[0].read_bytes() and policy.asked == len(done) - 30
    with pytest.raises(InputError, match="other settings"):
        flags = {"input_file": source, "output_file": output, "executor": "local", "num_samples": 1}
        asyncio.run(probe(ProbeConfig(**flags), Characters(), nullcontext(policy)))


def test_nothing_is_changed_in_a_run_that_is_wrong_before(problems):
    rng, noise, changed = random.Random(0), Noise(misread=0, doubt=0), 0
    for problem in problems:
        response = careful_attempt(rng, Dialogue(problem), noise).response
        change = change_value(response, random.Random(1))
        if change is None:
            continue
        changed += 1
        assert change.own == change.right != change.wrong
        at = next(i for i, pair in enumerate(zip(change.begun, response, strict=False)) if pair[0] != pair[1])
        assert "," not in change.begun[at:-1] and "=" not in change.begun[at:]
        first = response.index("\n1. ", response.index("Example 1"))
        assert change_value(f"{response[: first + 4]}no {response[first + 4 :]}", random.Random(1)) is None
    assert changed > 4
    for text in ("", "<think>Plan:\nExample 1: 3 -\n", "<think>Plan:\n1. sum: sum\nExample 1: 3 -\n", "```\n1\n```"):
        assert change_value(text, rng) is None


def after_change(plan, example, work):
    """The changed items of a step and the value that should follow, over some draws; the step is the first of two."""
    found = {}
    for seed in range(20):
        run = f"1. {plan}: {work}\n2. join space = "
        thinking = f"Plan:\n1. a: {plan}\n2. b: join space\nExample 1: {example}\n{run}"
        change = change_value(f"<think>{thinking}", random.Random(seed))
        if change is not None:
            found[change.begun.rpartition(": ")[2]] = change.wrong
    return found


def test_what_follows_from_a_change():
    sums = after_change("running sum", "1 2 3", "1 1, 2 3, 3 6 = 1 3 6")
    assert sums["1 6,"] == ["6 8 11"] * 2 and sums["1 1, 2 -1,"] == ["1 -1 2"] * 2
    largest = after_change("running max", "1 5 4", "1 1, 5 5, 4 5 = 1 5 5")
    assert largest["1 1, 5 2,"] == ["1 2 4"] * 2 and largest["1 1, 5 8,"] == ["1 8 8"] * 2
    products = after_change("x * place", "2 2 2", "2 2, 2 4, 2 6 = 2 4 6")
    assert products["2 2, 2 7,"] == ["2 7 6"] * 2
    words = after_change("upper", "red dog", "red RED, dog DOG = RED DOG")
    assert all(wrong == [f"{begun[4:-1]} DOG"] * 2 for begun, wrong in words.items()) and len(words) > 4


@pytest.fixture(scope="module")
def checkpoint(problems, tmp_path_factory):
    """A network that has learnt nothing."""
    folder = tmp_path_factory.mktemp("checkpoint")
    texts = [render_prompt(first_messages(problem.instruction)) for problem in problems]
    tokenizer = train_tokenizer(texts, vocab_size=300)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "max_position_embeddings": 4096}
    model = new_network(tokenizer, num_attention_heads=2, num_key_value_heads=2, head_dim=16, **sizes)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, tokenizer


def test_the_command_on_a_checkpoint(checkpoint, source, tmp_path, capsys):
    output = tmp_path / "out.jsonl"
    flags = {"model": checkpoint[0], "input_file": source, "executor": "local", "num_problems": 3, "max_tokens": 30}
    config = ProbeConfig(output_file=output, num_samples=1, cuts=(0, 5), **flags)
    main(config)
    records = list(read_jsonl(output))
    assert len(records) == 9 and not any(record["passed"] for record in records)
    for record in records:
        whole = next(other for other in records if other["id"] == [*record["id"][:2], "whole"])
        assert record["response"].startswith(record["begun"])
        assert record["begun"] in (f"<think>{whole['response'][: len(record['begun']) - 15]}</think>", "")
    assert "| thinking | cut to 5 | 0.0 [0.0, 0.0] | 0.0 [0.0, 0.0] | whole | 3 | 3 |" in capsys.readouterr().out
    for wrong in ({"model": tmp_path}, {"input_file": checkpoint[0] / "config.json"}):
        with pytest.raises(InputError):
            main(replace(config, output_file=tmp_path / "other.jsonl", **wrong))
        assert not (tmp_path / "other.jsonl").exists()


def test_a_begun_answer_is_gone_on_with(checkpoint):
    tokenizer, messages = checkpoint[1], first_messages("Add.")
    for begun in ("<think>1. x + 4: 3 7, 5 12,", "<think></think>"):
        ids = prompt_tokens(tokenizer, [*messages, {"role": "assistant", "content": begun}])
        assert ids == tokenizer(render_prompt(messages) + begun, add_special_tokens=False).input_ids
