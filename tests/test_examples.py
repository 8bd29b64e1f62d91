"""The files of examples/: each does what it is there for, in the commands that take it."""

import asyncio
import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from in_process import exit_code
from quickly import made_quickly

from cobalt.completion import Completion
from cobalt.errors import InputError
from cobalt.inference.engines import open_own_engine
from cobalt.perturbation import own_perturbation
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.sandbox.own_files import OwnFile

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "examples" / "README.md").read_text()


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands of examples/README.md write."""
    return written_here(tmp_path_factory.mktemp("examples"), 0)


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the other domain, up to its training."""
    return written_here(tmp_path_factory.mktemp("sums"), 1) / "sums"


def written_here(folder: Path, block: int) -> Path:
    """Run a block of commands for Python in this process; the folder that they write to."""
    told = in_bash(folder, 'python() { echo "${@@Q}"; }\n', block)
    with made_quickly(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for script, *arguments in map(shlex.split, told.splitlines()):
            assert exit_code(Path(script), script, *arguments) == 0, script
    return folder / "runs"


def in_bash(folder: Path, before: str, *blocks: int) -> str:
    """Run blocks of commands in a checkout's stand-in, after the text ``before``; what they print."""
    folders = ("assets", "cobalt", "examples", "preproc", "scripts", "verl")
    for name in (*folders, *(path.name for path in ROOT.glob("*.py"))):
        (folder / name).symlink_to(ROOT / name)
    (folder / "runs").mkdir()
    found = README.split("```bash\n")[1:]
    commands = before + "".join(found[block].partition("```")[0] for block in blocks)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    done = subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def content(path: Path) -> dict[str, Any]:
    return json.loads(Path(f"{path}.manifest.json").read_text())["content"]


def test_the_own_engine_and_checker_decide_and_are_recorded_by_hash(runs: Path) -> None:
    assert set(rows(runs / "own.jsonl")) == {"mean", "half", "span"}, "exact would not take 1.5 for 1.5000"
    evaluated = rows(runs / "own.eval.jsonl")
    rates = {id_: [rate == 1 for rate in row["all_pass_rates"][0]] for id_, row in evaluated.items()}
    assert rates == {"mean": [False, True], "half": [True, True], "span": [False, True]}
    assert content(runs / "own.turns.jsonl")["engine"] == OwnFile.read("examples/engine.py:Recorded").identity
    (usage,) = json.loads((runs / "own.turns.jsonl").read_text().splitlines()[0])["usage"][0]
    assert usage == {"prompt_tokens": 0, "completion_tokens": 0, "finish_reason": "stop", "cost": None}
    for name in ("own.turns.jsonl", "own.eval.jsonl"):
        assert content(runs / name)["execution"]["checker"] == OwnFile.read("examples/checker.py:close").identity


def test_the_own_perturbation_shows_one_wrong_output(runs: Path) -> None:
    assert set(rows(runs / "own.ptb.jsonl")) == {"span"}, "the others have no whole numbers"
    row = rows(runs / "own.ptb.jsonl")["span"]
    clean, shown, modified = (
        TestCases.parse(row[f"{name}_test_cases"]) for name in ("public", "perturbed_public", "modified")
    )
    right = dict(zip(clean.inputs_K, clean.outputs_K, strict=True))
    assert len(modified) == 1 and int(modified.outputs_K[0]) == int(right[modified.inputs_K[0]]) + 1
    assert shown.select([0]) == modified and sorted(shown.inputs_K) == sorted(clean.inputs_K)
    identity = OwnFile.read("examples/perturbation.py:off_by_one").identity
    assert content(runs / "own.ptb.jsonl")["perturbation"] == identity
    # It depends on the seed alone.
    off_by_one = OwnFile.read("examples/perturbation.py:off_by_one").load()
    outputs = [str(number) for number in range(9)]
    assert off_by_one([], outputs, random.Random(1)) == off_by_one([], outputs, random.Random(1)) != outputs
    assert off_by_one([], ["a", "1.5"], random.Random(1)) is None


async def test_an_own_engine_may_complain_about_its_model() -> None:
    with pytest.raises(InputError, match="--model must name the file"):
        async with open_own_engine("examples/engine.py:Recorded", None, None):
            pass


@pytest.mark.parametrize(("program", "bonus"), [("# sum\nprint(1)", 0.01), ("print(1)", 0.0)])
def test_the_own_reward_adds_its_bonus(program: str, bonus: float) -> None:
    pytest.importorskip("ray")
    reward = OwnFile.read("examples/reward.py:compute_score").load()

    async def execute(code: str, tests: str) -> ExecutionResult:
        return ExecutionResult((Verdict.PASSED,), ("",), ("",))

    batch = SimpleNamespace(execute=execute, count_tokens=len, validate=False)
    response = f"<think>x</think>\n```python\n{program}\n```"
    scores = asyncio.run(reward("source", response, "{}", {}, batch))
    assert scores["reward_comment"] == bonus
    assert scores["score"] == pytest.approx(scores["reward_total"] + bonus)


def test_another_domain_has_feedback_of_its_own(sums: Path) -> None:
    evaluated = rows(sums / "evaluated.jsonl")
    assert {rate for row in evaluated.values() for rates in row["all_pass_rates"] for rate in rates} == {0.0, 1.0}
    contexts = [json.loads(line) for line in (sums / "contexts.jsonl").read_text().splitlines()]
    shown = [context["conversation"][-1]["content"] for context in contexts if context["turn"] > 0]
    assert any("Expected Output:\nbelow " in text for text in shown) and not any("\nis " in text for text in shown)
    assert 0 < sum(context["prev_best_pass_rate"] for context in contexts) < len(contexts)
    assert (sums / "train.parquet").is_file()


@pytest.mark.parametrize(
    ("printed", "statement", "expected"),
    [
        ("12", "odd 0", True),
        ("12", "digits 3", False),
        ("12", "below 20", True),
        ("12.0", "is 12", True),
        ("", "is 0", False),
        ("inf", "below 20", False),
        ("-1e999", "below 20", False),
        ("nan", "digits 3", False),
    ],
)
def test_the_calculators_check(printed: str, statement: str, expected: bool) -> None:
    assert OwnFile.read("examples/calculator.py:holds").load()(printed, statement) is expected


@pytest.mark.parametrize(
    ("printed", "validate", "reward"),
    [("20", False, 1.0), ("30", False, 1 / 3), ("30", True, 0.0), ("x", False, 0.0), ("nan", False, 0.0)],
)
def test_the_calculators_reward_is_larger_near_the_result(printed: str, validate: bool, reward: float) -> None:
    compute_score = OwnFile.read("examples/calculator.py:compute_score").load()

    async def execute(code: str, tests: TestCases) -> ExecutionResult:
        verdict = Verdict.PASSED if printed == "20" else Verdict.WRONG_ANSWER
        return ExecutionResult((verdict,), (printed,), ("",))

    batch = SimpleNamespace(execute=execute, validate=validate)
    truth = TestCases(("",), ("is 20",)).to_json()
    scores = asyncio.run(compute_score("source", "```python\nprint(1)\n```", truth, {}, batch))
    assert scores["score"] == pytest.approx(reward)


@pytest.mark.slow
def test_another_domain_is_trained_and_measured_by_the_same_commands(tmp_path: Path) -> None:
    pytest.importorskip("verl")
    in_bash(tmp_path, "", 1, 2)
    folder = tmp_path / "runs" / "sums"
    steps = [json.loads(line) for line in (folder / "training" / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2] and all(0 <= step["reward/near"] <= 1 for step in steps)
    assert len(rows(folder / "trained.jsonl")) == 12


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("absent.py:f", "no such file absent.py"),
        ("own.py:missing", "defines no function or class 'missing'"),
        ("own.py:VALUE", "defines no function or class 'VALUE'"),
        ("broken.py:f", "cannot be run: ZeroDivisionError"),
        ("leaves.py:f", "cannot be run: SystemExit: 0"),
    ],
)
def test_files_that_do_not_have_what_is_asked_for(tmp_path: Path, monkeypatch, name: str, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("VALUE = 1\n")
    Path("broken.py").write_text("1 / 0\n")
    Path("leaves.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(InputError, match=complaint):
        OwnFile.read(name).load()


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a script in this process, which refuses its flags: its complaint."""

    def run(script: str, *flags: object) -> str:
        assert exit_code(ROOT / script, script, *flags) == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


BAD_ENGINE = """
class Bad:
    model_id, max_in_flight = "bad", {}
    def __init__(self, model): pass
    {}
"""
ASYNC = "async def generate(self, messages, sampling, seed):"


@pytest.mark.parametrize(
    ("in_flight", "generate", "complaint"),
    [
        (2, f"{ASYNC} return 'text'", "it gave no Completion, but a value of type str"),
        (0, f"{ASYNC} return 'text'", "its max_in_flight is 0, not a number above 0"),
        ("'2'", f"{ASYNC} return 'text'", "its max_in_flight is 2, not a number above 0"),
        (2, "def generate(self, messages, sampling, seed): return 'text'", "its generate must be async"),
        (2, f"{ASYNC} raise SystemExit(0)", "raised SystemExit: 0 ({}/bad.py, line 5)"),
        (2, f"{ASYNC} return 1 / 0", "raised ZeroDivisionError: division by zero ({}/bad.py, line 5)"),
        (  # the user's line, not that of the standard library
            2,
            f"{ASYNC} return __import__('json').loads('')",
            "raised JSONDecodeError: Expecting value: line 1 column 1 (char 0) ({}/bad.py, line 5)",
        ),
    ],
)
def test_an_own_engine_that_does_not_work(
    tmp_path: Path, in_flight: Any, generate: str, complaint: str, refusal: Any
) -> None:
    (tmp_path / "bad.py").write_text(BAD_ENGINE.format(in_flight, generate))
    one, two = (json.dumps({"inputs": ["1"] * n, "outputs": ["1"] * n}) for n in (1, 2))
    tests = {"test_cases": two, "public_test_cases": one, "hidden_test_cases": one}
    problem = {"id": "a", "instruction": "Print 1.", **tests}
    (tmp_path / "in.jsonl").write_text(json.dumps(problem) + "\n")
    files = ("-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl")
    own = ("-n", 1, "--executor", "local", "--engine", f"{tmp_path}/bad.py:Bad")
    line = f"run_single_turn_vllm.py: error: --engine {tmp_path}/bad.py:Bad: {complaint.format(tmp_path)}"
    assert refusal("run_single_turn_vllm.py", *files, *own) == line
    assert not (tmp_path / "out.jsonl.manifest.json").exists()


def test_a_completion_has_a_text() -> None:
    with pytest.raises(TypeError, match="a completion has a text, not a value of type NoneType"):
        Completion(None)  # type: ignore[arg-type]


def test_an_own_perturbation_that_exits_is_an_error() -> None:
    with pytest.raises(InputError, match="problem 'a': the perturbation raised SystemExit"):
        own_perturbation(lambda inputs, outputs, rng: sys.exit(0))(TestCases(("1",), ("1",)), 0, "a")


@pytest.mark.parametrize("given", [5, "ab", ["x"], [1, 2]])
def test_an_own_perturbation_that_gives_no_text_for_each_test(given: Any) -> None:
    change = own_perturbation(lambda inputs, outputs, rng: given)
    with pytest.raises(ValueError):
        change(TestCases(("1", "2"), ("1", "2")), 0, "a")


def test_the_identity_follows_the_text_and_not_the_folder(tmp_path: Path) -> None:
    for folder, text in (("a", "x = 1\n"), ("b", "x = 1\n"), ("c", "x = 2\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(text)
    same, also, other = (OwnFile.read(f"{tmp_path / folder}/own.py:f").identity for folder in "abc")
    assert same == also != other and same.startswith("own.py:f@")


@pytest.mark.parametrize("checker", ["close", "absent.py:f"])
def test_an_unknown_checker_is_refused(tmp_path: Path, checker: str, refusal: Any) -> None:
    source = tmp_path / "in.jsonl"
    tests = {"test_cases": '{"inputs": ["1", "2"], "outputs": ["1", "2"]}'}
    tests |= dict.fromkeys(("public_test_cases", "hidden_test_cases"), '{"inputs": ["1"], "outputs": ["1"]}')
    turns = {"conversations": [[]], "public_pass_rates": [], **tests}
    source.write_text(json.dumps({"id": 0, **turns}) + "\n")
    flags = ("-i", source, "-o", tmp_path / "out.jsonl", "--executor", "local", "--checker", checker)
    assert refusal("eval_multi_turn.py", *flags).startswith("eval_multi_turn.py: error: ")
