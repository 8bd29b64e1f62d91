"""Every entry on bad input: exit 2, one line that names file, line and field, nothing overwritten; no service: 3."""

import gzip
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from in_process import exit_code
from pydantic.dataclasses import is_pydantic_dataclass

import cobalt
from cobalt import __main__ as console
from cobalt.cli.flags import CommandConfig
from cobalt.sampler import packages

ROOT = Path(__file__).resolve().parents[1]
TESTS = json.dumps({"inputs": ["1", "2", "3"], "outputs": ["1", "4", "9"]})
MORE_TESTS = json.dumps({"inputs": list("12345678"), "outputs": [str(n * n) for n in range(1, 9)]})
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
TURN = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "f"}]
RESULT = {"passing": [True, False, False], "feedback": ["", "x", "x"]}

Row = dict[str, Any]
RAW: Row = {
    "difficulty": "EASY",
    "question": "Print the square of the number. " * 10,
    "input_output": MORE_TESTS,
    "solutions": '["print(int(input()) ** 2)"]',
}
PROBLEM: Row = {"difficulty": "EASY", "question": "q", "instruction": "u", "test_cases": MORE_TESTS}
PROBLEM |= {"public_test_cases": TESTS, "hidden_test_cases": TESTS}
SINGLE: Row = {**PROBLEM, "responses": ["r"], "exec_results": [RESULT]}
MULTI: Row = {
    **SINGLE,
    "conversations": [MESSAGES + TURN + TURN],
    "raw_responses": [["r"], ["r"]],
    "public_pass_rates": [[0.3], [0.3]],
    "public_exec_results": [[RESULT]] * 2,
}
EVALUATED: Row = {**MULTI, "all_pass_rates": [[0.3, 0.3]]}
PERTURBED: Row = {
    **EVALUATED,
    "modified_test_cases": json.dumps({"inputs": ["1", "2"], "outputs": ["4", "1"]}),
    "perturbed_public_test_cases": json.dumps({"inputs": ["1", "2", "3"], "outputs": ["4", "1", "9"]}),
}
BANDIT: Row = {"conversation": MESSAGES, "test_cases": TESTS, "difficulty": "EASY", "prev_best_pass_rate": 0}
LCB_TESTS = json.dumps([{"input": "1", "output": "1", "testtype": "stdin"}])
LCB: Row = {
    "question_content": "q" * 200,
    "platform": "atcoder",
    "contest_date": "2025-01-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": LCB_TESTS,
    "private_test_cases": LCB_TESTS,
    "metadata": "{}",
}
CASE: Row = dict.fromkeys(("question", "previous_code", "feedback", "current_code", "patch"), "x")
CASE |= {"all_acc": 0.0, "public_all_acc": 0.0, "trajectory": 0, "turn": 1}


@dataclass(frozen=True)
class Entry:
    """One command: how to call it (a script, or the words of the console), and a row that it accepts."""

    script: str
    fields: Row
    required: str
    flags: tuple[str, ...] = ()
    runs_programs: bool = False
    id_field: str = "id"
    is_unique: bool = True
    files: str = "--input_file {source} --output_file {out}"
    made: str = "{}"
    """The file that it writes, made from the path that it is given."""

    def row(self, id_: str) -> Row:
        return {self.id_field: id_, **self.fields}

    def named(self, source: Path, out: Path) -> list[str]:
        return [part.format(source=source, out=out) for part in self.files.split()]

    def output(self, out: Path) -> Path:
        return Path(self.made.format(out))


HF = ("--engine", "hf", "--model", str(ROOT / "assets" / "minicoder"))
API = ("--model_name", "openai/none")
PARQUET = {"files": "--train_data_file {source} --val_data_file {source} --local_dir {out}", "made": "{}/train.parquet"}
HACKING = "--data_file {source} --input_file {source} --output_file {out}"
TO_BANDIT = ("--model_name", HF[-1])
ENTRIES = [
    Entry("preproc/preproc_taco.py", RAW, "question", ("--dev_size", "0"), runs_programs=True),
    Entry("preproc/preproc_lcb_test6.py", LCB, "question_content", id_field="question_id"),
    Entry("preproc/run_perturbation.py", PROBLEM, "public_test_cases"),
    Entry("preproc/process_multi_turn_taco.py", EVALUATED, "conversations", TO_BANDIT),
    Entry("preproc/verl_preproc_single_turn.py", PROBLEM, "instruction", **PARQUET),
    Entry(
        "preproc/verl_preproc_multi_turn.py", BANDIT, "conversation", id_field="example_id", is_unique=False, **PARQUET
    ),
    Entry("run_single_turn_vllm.py", PROBLEM, "instruction", HF, runs_programs=True),
    Entry("run_multi_turn_vllm.py", SINGLE, "responses", HF, runs_programs=True),
    Entry("run_single_turn_litellm.py", PROBLEM, "instruction", API, runs_programs=True),
    Entry("run_multi_turn_litellm.py", SINGLE, "responses", API, runs_programs=True),
    Entry("eval_multi_turn.py", MULTI, "conversations", runs_programs=True),
    Entry(
        "extract_turn_level_errors.py",
        PERTURBED,
        "public_exec_results",
        ("--dynamic",),
        runs_programs=True,
        files=HACKING,
    ),
    Entry("run_llm_judge.py", CASE, "patch", API, is_unique=False),
]


def each(entries: Iterable[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", list(entries), ids=lambda entry: entry.script)


Call = Callable[..., tuple[int, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run an entry in this process, where no Ray cluster listens; its exit code and the one line of its complaint."""

    def run(entry: Entry, *files: str) -> tuple[int, str]:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        is_script = entry.script.endswith(".py")
        words = [str(ROOT / entry.script)] if is_script else entry.script.split()
        code = exit_code(ROOT / entry.script if is_script else console.main, *words, *files, *entry.flags)
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
        assert line.startswith(f"{Path(entry.script).name}: error: ")
        return code, line

    return run


def _write(path: Path, *lines: Row | str) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def _rejected(call: Call, entry: Entry, source: Path, tmp_path: Path) -> str:
    """The complaint; nothing may have been written."""
    out = tmp_path / "out"
    code, line = call(entry, *entry.named(source, out))
    assert code == 2
    made = entry.output(out)
    assert not made.exists() or not made.read_bytes()
    return line


@each(ENTRIES)
def test_an_input_that_cannot_be_read_is_refused(entry: Entry, call: Call, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    assert "in.jsonl: no such file" in _rejected(call, entry, source, tmp_path)
    one, two = entry.row("a"), entry.row("b")
    broken = {name: value for name, value in two.items() if name != entry.required}
    faults: list[tuple[list[Row | str], str]] = [
        ([one, two, "{oops"], "line 3: not valid JSON"),
        ([one, broken], f"line 2: missing field '{entry.required}'"),
    ]
    if entry.is_unique:
        faults.append(([one, one], f"line 2: duplicate {entry.id_field} 'a'"))
    if entry.script != "run_llm_judge.py":  # there may be no case to judge
        faults.append(([""], "holds no records"))
    for lines, complaint in faults:
        assert f"in.jsonl: {complaint}" in _rejected(call, entry, _write(source, *lines), tmp_path)
    # compressed with a byte order mark: the lines before the fault can be read
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(f"\ufeff{json.dumps(one)}\n{json.dumps(two)}\n{{oops".encode()))
    assert "in.jsonl.gz: line 3: not valid JSON" in _rejected(call, entry, packed, tmp_path)


@each(entry for entry in ENTRIES if HF[-1] in entry.flags)
@pytest.mark.parametrize(("model", "complaint"), [("/no/such/model", "no such folder"), ("docs", "")])
def test_a_wrong_model(entry: Entry, model: str, complaint: str, call: Call, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.jsonl", entry.row("a"))
    flags = tuple(str(ROOT / model) if flag == HF[-1] else flag for flag in entry.flags)
    executor = ("--executor", "local") if entry.runs_programs else ()
    line = _rejected(call, replace(entry, flags=(*flags, *executor)), source, tmp_path)
    assert model in line and complaint in line


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands for it: Python must not write its own under it, it would cut them."""
    source = _write(tmp_path / "in.jsonl", *({"id": number, **PROBLEM} for number in range(100)))
    script = f"{sys.executable} -B preproc/run_perturbation.py --input_file {source} --output_file {tmp_path}/out.jsonl"
    done = subprocess.run(["bash", "-c", f"ulimit -f 8; exec {script}"], cwd=ROOT, capture_output=True, text=True)
    line = f"run_perturbation.py: error: {tmp_path}/out.jsonl: File too large; make room"
    assert done.returncode == 3 and done.stderr.splitlines()[-1].startswith(line)
    assert "Traceback" not in done.stderr


def test_a_full_disk_under_a_library(tmp_path: Path) -> None:
    """Weights are written by safetensors, whose errors are its own."""
    saving = f"save_file({{'a': numpy.zeros(100_000)}}, '{tmp_path}/weights')"
    imports = "import numpy; from safetensors.numpy import save_file; from cobalt.cli.entry import exit_codes"
    command = f'ulimit -f 8; exec {sys.executable} -B -c "{imports}\nwith exit_codes(): {saving}"'
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3 and "File too large (os error 27); make room" in done.stderr
    assert done.stderr.count("\n") == 1


@each(ENTRIES)
def test_an_output_that_cannot_be_written_is_refused(
    entry: Entry, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = _write(tmp_path / "in.jsonl", entry.row("a")), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)  # root may write anywhere
        assert "no permission to write in this folder" in _rejected(call, entry, source, tmp_path)
    if entry.made == "{}":
        os.mkfifo(tmp_path / "pipe")
        code, line = call(entry, *entry.named(source, tmp_path / "pipe"))
        assert code == 2 and "exists and is no file" in line
        assert (tmp_path / "pipe").is_fifo()
        before = source.read_text()
        code, line = call(entry, *entry.named(source, source))
        assert code == 2 and "in.jsonl" in line
        assert source.read_text() == before
    # a file that is not ours
    entry.output(out).parent.mkdir(exist_ok=True)
    kept = _write(entry.output(out), "kept")
    executor = ["--executor", "local"] if entry.runs_programs else []  # looked at once there is an execution service
    code, line = call(entry, *entry.named(source, out), *executor)
    assert code == 2 and "no manifest" in line
    assert kept.read_text() == "kept\n"


@each(entry for entry in ENTRIES if entry.flags[:2] == HF[:2])
@pytest.mark.parametrize("installed", ["4.51.3", "none"])
def test_packages_that_the_engine_cannot_use(
    entry: Entry, installed: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(_name: str) -> str:
        if installed == "none":
            raise packages.PackageNotFoundError
        return installed

    monkeypatch.setattr(packages, "version", version)
    code, line = call(entry, *entry.named(_write(tmp_path / "in.jsonl", entry.row("a")), tmp_path / "out"))
    assert code == 3 and f"or later, but {installed} is installed. In another environment: pip install" in line


@each(entry for entry in ENTRIES if entry.runs_programs)
def test_no_execution_service(entry: Entry, call: Call, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.jsonl", entry.row("a"))
    out = tmp_path / "out.jsonl"
    code, line = call(entry, *entry.named(source, out))
    assert code == 3 and ("evaluator" in line or "Ray" in line)
    assert not out.exists() or not out.read_bytes()


Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a script, or without one the console, in this process: its exit code, and what it says on either stream."""

    def run(*words: str, script: str | None = None) -> tuple[int, str, str]:
        code = exit_code(console.main if script is None else ROOT / script, script or "cobalt", *words)
        return code, *capsys.readouterr()

    return run


def test_the_console_lists_twenty_commands_at_most() -> None:
    assert len(console.COMMANDS) <= 20


def required_come_first(told: str) -> bool:
    """Of the flags that a help tells."""
    # in a box, which has no lines of its own where the output is no terminal
    _, help_, *flags = re.split(r"\n[│ ] (?=-)", told.partition("options")[2])
    required = ["(required)" in " ".join(flag.split()) for flag in flags]
    return help_.startswith("-h") and required == sorted(required, reverse=True)


@pytest.mark.parametrize("name", sorted({*console.COMMANDS} - {"train", "rft", "sandbox check"}))  # hydra's; argparse's
def test_every_command_of_the_console_tells_its_flags_required_ones_first(name: str, say: Say, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    code, told, _ = say(*name.split(), "--help")
    assert code == 0 and "usage:" in told and required_come_first(told)


IN_AN_IMPORT = """\
from cobalt.cli.entry import exit_codes
with exit_codes():
    import compiled
"""
COMPILED = """\
import time
print("ready", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:  # as what is compiled does
    raise ImportError("initialization failed")
"""
IN_A_TASK = """\
import asyncio, dataclasses
from cobalt.cli.entry import run
Flags = dataclasses.make_dataclass("Flags", [])
async def main(flags):
    print("ready", flush=True)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
run(Flags, main)
"""


@pytest.mark.parametrize(("program", "output"), [(IN_AN_IMPORT, ""), (IN_A_TASK, "cancelled\n")])
def test_an_interrupt_is_told_in_one_line_also_within_an_import(program: str, output: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(program)
    (tmp_path / "compiled.py").write_text(COMPILED)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, tmp_path / "main.py"], **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, output)
    assert err == "main.py: interrupted; run the same command again to continue\n"


def test_pydantic_checks_every_setting() -> None:
    """The dataclasses of the standard library would accept any value."""
    unchecked, found = [], [CommandConfig]
    for config in found:
        found += config.__subclasses__()
        unchecked += [] if is_pydantic_dataclass(config) else [config]
    assert len(found) > 1 and not unchecked


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_console_lists_every_command_and_tells_its_version(flag: str, say: Say) -> None:
    code, told, complaint = say(flag)
    assert (code, complaint) == (0, "")
    pipeline, _, commands = told.partition("Commands; ")
    assert [line.split()[0] for line in pipeline.splitlines()[1:]] == [*"123456"]
    *lines, example = commands.splitlines()[1:]
    assert [line.split("  ")[1] for line in lines] == [f"cobalt {name}" for name in console.COMMANDS]
    assert example.startswith("Example: ")
    assert say("--version") == (0, f"cobalt {cobalt.__version__}\n", "")


@pytest.mark.parametrize("words", ["--help", "merge --help", "train --help"])
def test_a_reader_that_ends_early_gets_no_traceback(words: str) -> None:
    """As ``| head`` does; here before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "cobalt", *words.split()]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_broken_pipe_is_an_error() -> None:
    breaks = "import os; from cobalt.cli.entry import exit_codes\nwith exit_codes(): raise BrokenPipeError('elsewhere')"
    done = subprocess.run([sys.executable, "-c", breaks], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "BrokenPipeError: elsewhere")


GROUPS = sorted({name.rpartition(" ")[0] for name in console.COMMANDS if " " in name})


@pytest.mark.parametrize("group", GROUPS)
def test_words_that_begin_commands_have_a_help_of_their_own(group: str, say: Say) -> None:
    code, told, complaint = say(*group.split(), "--help")
    assert (code, complaint) == (0, "")
    for name, command in console.COMMANDS.items():
        line = f"  cobalt {name}  "
        assert (line in told) == (name == group or name.startswith(f"{group} ")), name
        assert line not in told or (command.__doc__ or "").split("\n")[0] in told
    assert f"\nExample: cobalt {group}" in told


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("", "cobalt --help lists all"),
        ("sandbox", "perhaps: sandbox check, sandbox run, sandbox serve;"),
        ("trian --help", "perhaps: train;"),
        ("data importt", "perhaps: data import;"),
        ("--helpp", "cobalt --help lists all"),
    ],
)
def test_words_that_name_no_command_are_refused(words: str, hint: str, say: Say) -> None:
    code, told, line = say(*words.split())
    assert (code, told, line.count("\n")) == (2, "", 1)
    assert line.startswith("cobalt: error: no ") and words in line and hint in line


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--input_fil x", "unknown flag --input_fil; did you mean --input_file?"),
        ("--in-flight 3", "unknown flag --in_flight; did you mean --max_in_flight?"),
        ("-q", "unknown flag -q; --help lists the flags"),
        ("", "missing: --input_file, --output_file; --help explains them"),
        ("-i x -o y --temperature abc", "Error parsing --temperature: could not convert string to float: 'abc'"),
        ("-i x -o y --temperature -3", "--temperature=-3.0: Input should be greater than or equal to 0"),
        ("-i x -o y --temperature inf", "--temperature=inf: Input should be less than inf"),
        ("-i x -o y --request_timeout_s 0", "--request_timeout_s=0.0: Input should be greater than 0"),
        ("-i x -o y --request_timeout_s nan", "--request_timeout_s=nan: Input should be "),
        ("-i x -o y --executor here", "invalid choice 'here' for argument '--executor'. Expected one of"),
        ("-i x -o y stray", "Unrecognized options: stray"),
        ("-i x -o", "Missing value for argument '-o/--output_file'."),
    ],
)
def test_wrong_flags_are_refused_in_one_line(words: str, complaint: str, say: Say) -> None:
    code, told, line = say(*words.split(), script="run_single_turn_vllm.py")
    assert (code, told, line.count("\n")) == (2, "", 1)
    assert line.startswith(f"run_single_turn_vllm.py: error: {complaint}")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("view", "FILE"),
        ("data import taco", "INPUT, --output_file"),
        ("data trajectories", "--from, --problems, --output_file"),
    ],
)
def test_what_is_missing_is_named_once(words: str, missing: str, say: Say) -> None:
    code, told, line = say(*words.split())
    assert (code, told) == (2, "") and line.endswith(f": error: missing: {missing}; --help explains them\n")


@pytest.mark.parametrize(("tests", "end"), [(4, "greater than or equal to 5"), (10**350, "9223372036854775807")])
def test_some_tests_have_to_stay_hidden(tests: int, end: str, say: Say) -> None:
    code, told, line = say("-i", "x", "-o", "y", "--min_tests", str(tests), script="preproc/preproc_taco.py")
    assert (code, told, line.count("\n")) == (2, "", 1) and "--min_tests" in line and end in line


@pytest.mark.parametrize("command", ["-m cobalt train", "-m cobalt data import", "run_llm_judge.py"])
def test_without_the_environment_its_activation_is_named(command: str) -> None:
    done = subprocess.run([sys.executable, "-S", "-E", *command.split()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert re.fullmatch(r"[\w. ]+: error: No module named '\w+'; first: source \.venv/bin/activate .*\n", done.stderr)


def test_scripts_outside_of_the_root_find_the_package() -> None:
    for script in (ROOT / "preproc").glob("*.py"):
        done = subprocess.run([sys.executable, "-S", "-E", script], cwd="/", capture_output=True, text=True)
        assert done.returncode == 3 and "source .venv/bin/activate" in done.stderr, script


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("data import taco", "data import"),
        ("data import livecodebench x", "data import livecodebench"),
        ("merge import", "merge"),
        ("data_import", None),
    ],
)
def test_the_longest_name_wins(words: str, name: str | None) -> None:
    assert console.chosen(console.COMMANDS, words.split()) == name


SCRIPTS = sorted({entry.script for entry in ENTRIES if entry.script.endswith(".py")})


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_tell_the_version_and_the_same_names_for_one_thing(script: str, say: Say) -> None:
    assert say("--version", script=script) == (0, f"{Path(script).name} (cobalt {cobalt.__version__})\n", "")
    code, told, _ = say("--help", script=script)
    flags = set(re.findall(r"(?<![\w-])--?\w+", told))
    assert code == 0 and required_come_first(told)
    for short, long in (("-i", "--input_file"), ("-o", "--output_file"), ("--model", "--model_name")):
        assert (short in flags) == (long in flags)
    assert "--concurrency" not in flags or "--max_in_flight" in flags


@pytest.mark.parametrize("app", ["remote_reward_server.py", "vllm_engine_actor.py"])
@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), ([], 2)])
def test_the_apps_tell_their_arguments(app: str, words: list[str], code: int, say: Say) -> None:
    ended, *streams = say(*words, script=app)
    told = streams[code == 2]
    assert ended == code and "serve run" in told and "replicas=1 " in told
    assert not re.findall(r"(?m)^  \w+=\S*$", told), "an argument without a word of what it is"


def test_parquet_is_made_of_what_the_stages_before_write_by_default(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / f"data/taco_verified_filtered_{split}.jsonl").write_text(json.dumps({"id": "a", **PROBLEM}) + "\n")
    monkeypatch.setattr(sys, "argv", ["verl_preproc_single_turn.py"])
    runpy.run_path(str(ROOT / "preproc/verl_preproc_single_turn.py"), run_name="__main__")
    assert (tmp_path / "data/verl_single_turn/train.parquet").exists()
