"""``cobalt sandbox run`` and ``serve``: the executor by HTTP, without Ray, under what hostile callers send."""

import asyncio
import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import one_complaint, run_cobalt
from http_calls import connect, first_line, post, status_of
from waiting import wait_for

from cobalt.errors import InfraError
from cobalt.sandbox import Verdict
from cobalt.sandbox.results import Output
from cobalt.serving.run_code import MergedRuns, RunCodeRequest

ROOT = Path(__file__).parents[2]
ADD = "print(sum(map(int, input().split())))"
TESTS = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}
LIMITS = {"max_body_mb": 24, "max_programs": 100, "max_tests": 1000, "cpu_limit_s": 2}
KEPT = 16 << 20


def python(*arguments: str, **settings) -> "subprocess.Popen[str]":
    """A process of this Python."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    return subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, psutil.Process]]:
    """``cobalt sandbox serve``: its URL and its process."""
    flags = [word for name, value in LIMITS.items() for word in (f"--{name}", str(value))]
    process = python("-m", "cobalt", "sandbox", "serve", "--port", "0", *flags)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            pytest.skip(process.stderr.read())
        yield line.split()[0], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def url(server) -> str:
    """Where it listens."""
    return server[0]


BAD_BODIES = [
    b"",
    b"not json",
    b"[]",
    b"\xff",
    b'{"code": "x"}',
    b'{"test_cases": {}}',
    b'{"code": 1, "test_cases": {"inputs": [""], "outputs": [""]}}',
    b'{"code": "x", "test_cases": {"inputs": ["a"], "outputs": []}}',
    b'{"programs": {}}',
    b'{"programs": [1]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_bad_payload_is_422_and_says_why(url, body):
    status, answer = post(f"{url}/run_tests", body)
    assert status == 422
    assert answer["detail"]


RUN = {"code": "print(input())", "language": "python", "stdin": "given"}
BAD_RUNS = [
    ({**RUN, "language": "cpp"}, "language"),
    ({**RUN, "code": 1}, "code"),
    ({**RUN, "run_timeout": -1}, "run_timeout"),
    ({**RUN, "fetch_files": ["a"]}, "fetch_files"),
    ({**RUN, "files": {"../a": ""}}, "working folder"),
    ({**RUN, "files": {"/etc/passwd": ""}}, "working folder"),
    ({**RUN, "files": {"a": "?"}}, "files"),
    ({**RUN, "files": {"a": "", "a/b": ""}}, "folder"),
    ({**RUN, "files": {"./a": "", "a/b": ""}}, "folder"),
    ({**RUN, "files": {"./a": "", "a": ""}}, "twice"),
    ({**RUN, "files": {"a/": ""}}, "no path of a file"),
    ({**RUN, "files": {"é" * 128: ""}}, "too long"),
    ({**RUN, "files": {"a/" * 15 + "a": ""}}, "too long"),
    ({**RUN, "files": {"\ud800": ""}}, "JSON"),
    ({**RUN, "files": {str(number): "" for number in range(1001)}}, "1000"),
    (b"{", "JSON"),
]


@pytest.mark.parametrize(("body", "complaint"), BAD_RUNS)
def test_a_run_that_cannot_be_is_422_and_says_why(url, body, complaint):
    status, answer = post(f"{url}/run_code", body)
    assert (status, complaint in answer["detail"]) == (422, True), answer


def test_lone_surrogates_come_through(url):
    tests = {"inputs": ["a\ud800"], "outputs": ["b"]}
    status, record = post(url, {"code": "print(input())", "test_cases": tests})
    assert status == 200
    assert "Input:\na\ud800" in record["feedback"][0]


def test_memory_returns_after_large_bodies(server):
    """Bodies of 24 MiB, some of them valid: what they took is given back, all but 16 MiB."""
    url, process = server
    tests = {"inputs": ["x" * (23 << 20)], "outputs": [""]}
    bodies = [json.dumps({"code": "print(3)", "test_cases": tests}).encode(), b" " * (24 << 20)]

    def held() -> int:
        return process.memory_info().rss - process.memory_info().shared

    before = held()
    assert {post(url, body)[0] for body in bodies * 4} == {200, 422}
    wait_for(lambda: held() <= before + KEPT)


def test_a_body_that_grows_too_large_is_413(url):
    with connect(url) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(32):
                connection.sendall(chunk)
        assert b" 413 " in first_line(connection)


def test_too_many_programs_or_tests_are_413_and_block_nobody(url):
    """A million programs without code took a replica for 71 s; empty tests made answers of 18 times their size."""
    programs = b'{"programs": [%s]}' % b",".join([b"{}"] * 1_100_000)
    tests = {"code": "", "test_cases": {"inputs": [""] * 1001, "outputs": [""] * 1001}}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        large = [pool.submit(post, url, body) for body in (programs, tests, {"programs": [tests]})]
        status, record = post(url, {"code": ADD, "test_cases": TESTS})
    assert (status, record["passing"]) == (200, [True, True])
    assert [one.result()[0] for one in large] == [413] * 3
    assert "max_programs" in large[0].result()[1]["detail"] and "max_tests" in large[1].result()[1]["detail"]


def test_a_caller_that_has_gone_frees_the_sandbox(url):
    """Its programs would take minutes; two requests of one program are run together."""
    sleeper = "import time\nwhile True: time.sleep(0.01)"
    many = {"programs": [{"code": sleeper, "test_cases": {"inputs": [""] * 9, "outputs": [""] * 9}}] * 12}
    one = {**RUN, "code": sleeper}
    with contextlib.ExitStack() as stack:
        for path, asked in (("/", many), *[("/run_code", one)] * 2):
            body = json.dumps(asked).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            stack.enter_context(connect(url)).sendall(head + body)
        wait_for(lambda: status_of(url)["queue_depth"])
    wait_for(lambda: not status_of(url)["queue_depth"])
    assert post(f"{url}/run_code", RUN)[0] == 200


def test_a_path_that_is_not_there_is_404(url):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        status_of(f"{url}/nothing")
    status, refused = post(f"{url}/nothing", {"code": ADD, "test_cases": TESTS})
    assert status == 404 and "POST /run_code or POST /run_tests or POST /" in refused["detail"]
    assert post(f"{url}/run_tests", {"code": ADD, "test_cases": TESTS})[0] == 200


def test_websockets_and_other_names_of_this_machine_are_refused(url):
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for asked, status in ((upgrade, b" 405 "), (b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n", b" 403 ")):
        with connect(url) as connection:
            connection.sendall(asked)
            assert status in first_line(connection)


def encoded(**files: str) -> dict[str, str]:
    """Files of a request."""
    return {name.replace("__", "."): base64.b64encode(text.encode()).decode() for name, text in files.items()}


SAYS = [
    (RUN, "Success", {"status": "Finished", "return_code": 0, "stdout": "given\n", "stderr": ""}),
    ({**RUN, "code": "import sys; sys.stderr.write('e'); sys.exit(7)"}, "Failed", {"return_code": 7, "stderr": "e"}),
    ({**RUN, "code": "def ("}, "Failed", {"status": "Finished", "return_code": 1, "stdout": ""}),
    ({**RUN, "code": "while True: pass", "run_timeout": 0.2}, "Failed", {"status": "TimeLimitExceeded"}),
    ({**RUN, "code": "x = bytearray(1 << 29)", "memory_limit_MB": 128}, "Failed", {"return_code": 137}),
    ({**RUN, "code": "print('x' * 3_000_000)"}, "Success", {"stdout": "x" * 3_000_000 + "\n"}),
    (
        {
            **RUN,
            "code": "import m, numpy; print(open('a.txt').read(), m.x)",
            "files": encoded(a__txt="A", m__py="x = 1"),
        },
        "Success",
        {"stdout": "A 1\n"},
    ),
]


@pytest.mark.parametrize(("asked", "status", "run_result"), SAYS)
def test_a_run_says_what_sandboxfusion_says(url, asked, status, run_result):
    code, answer = post(f"{url}/run_code", asked)
    assert (code, answer["status"]) == (200, status)
    assert answer["run_result"].items() >= run_result.items()


class FakeService:
    """Prints each input; keeps what it was asked for."""

    def __init__(self, one_turn: int = 100, error: Exception | None = None):
        self.asked, self.one_turn, self.error = [], one_turn, error

    async def run_inputs(self, code, tests, files):
        self.asked.append((code, tests.inputs_K, files))
        if self.error is not None:
            raise self.error
        return [Output(Verdict.PASSED, text, "", 0, 0.1) for text in tests.inputs_K[: self.one_turn]]


def asked_for(stdin: str, code: str = "a", **more) -> RunCodeRequest:
    return RunCodeRequest(code=code, language="python", stdin=stdin, **more)


async def test_requests_of_equal_programs_are_one_program():
    service = FakeService()
    merged = MergedRuns(service)
    requests = [asked_for("1"), asked_for("2"), asked_for("3", "b"), asked_for("4", files=encoded(f="x"))]
    answers = await asyncio.gather(*map(merged.run, requests))
    assert [answer["run_result"]["stdout"] for answer in answers] == ["1", "2", "3", "4"]
    assert service.asked == [("a", ("1", "2"), {}), ("b", ("3",), {}), ("a", ("4",), {"f": b"x"})]


async def test_those_that_one_turn_was_not_enough_for_run_alone():
    service = FakeService(one_turn=2)
    merged = MergedRuns(service)
    answers = await asyncio.gather(*(merged.run(asked_for(str(number))) for number in range(4)))
    assert [answer["run_result"]["stdout"] for answer in answers] == ["0", "1", "2", "3"]
    assert [inputs for _, inputs, _ in service.asked] == [("0", "1", "2", "3"), ("2",), ("3",)]


async def test_a_caller_that_leaves_while_it_waits_for_its_own_run_harms_no_other():
    service = FakeService(one_turn=1)
    merged = MergedRuns(service)
    callers = [asyncio.ensure_future(merged.run(asked_for(str(number)))) for number in range(4)]
    answer, run_inputs = asyncio.Event(), service.run_inputs

    async def slowly(*asked):
        await answer.wait()
        return await run_inputs(*asked)

    service.run_inputs = slowly
    while not merged._running:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    callers[1].cancel()
    answer.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(answers.pop(1), asyncio.CancelledError)
    assert [answer["run_result"]["stdout"] for answer in answers] == ["0", "2", "3"]


async def test_a_run_whose_caller_has_gone_is_stopped_though_others_have_their_answers():
    service, stopped = FakeService(one_turn=1), asyncio.Event()
    merged, run_inputs = MergedRuns(service), service.run_inputs

    async def slowly_alone(code, tests, files):
        try:
            await asyncio.sleep(60 if tests.inputs_K == ("2",) else 0)
        except asyncio.CancelledError:
            stopped.set()
            raise
        return await run_inputs(code, tests, files)

    service.run_inputs = slowly_alone
    first, second = (asyncio.ensure_future(merged.run(asked_for(text))) for text in "12")
    await first
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait_for(stopped.wait(), 30)


async def test_a_failure_of_the_infrastructure_is_504():
    """veRL sends a request again for this status only, and counts any other failure as a failed test."""
    from starlette.testclient import TestClient

    from cobalt.serving.app_settings import HttpAppConfig
    from cobalt.serving.http_app import http_app
    from cobalt.serving.http_guard import HttpGuard

    app = http_app(FakeService(error=InfraError("lost 5 sandboxes")), HttpAppConfig(), HttpGuard("secret", 1, 1.0))
    answer = TestClient(app).post("/run_code", json=RUN, headers={"authorization": "Bearer secret"})
    assert (answer.status_code, answer.json()) == (504, {"detail": "lost 5 sandboxes"})


def test_callers_beyond_the_open_files_wait_and_those_that_stop_sending_are_given_up():
    """4,400 callers at once: 3,339 got 503. 4,200 silent connections locked everybody out."""
    command = ["sh", "-c", 'ulimit -n 512; exec "$0" "$@"', sys.executable, "-m", "cobalt", "sandbox", "serve"]
    environment, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    flags = ["--port", "0", "--body_timeout_s", "2"]
    process = subprocess.Popen([*command, *flags], stdout=pipe, stderr=pipe, text=True, env=environment)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            pytest.skip(process.stderr.read())
        url, body = line.split()[0], json.dumps(RUN).encode()
        with contextlib.ExitStack() as stack:
            halves = [stack.enter_context(connect(url)) for _ in range(300)]
            for half in halves:
                half.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
            assert post(url, {"code": ADD, "test_cases": TESTS})[0] == 200
            assert {first_line(half).split()[1] for half in halves} == {b"408"}
        head = b"POST /run_code HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        asked = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(connect(url)) for _ in range(300)]
            for number, one in enumerate(silent):
                one.sendall(head[:number])  # some have begun, and none goes on
            callers = [stack.enter_context(connect(url)) for _ in range(400)]
            for caller in callers:
                caller.sendall(asked)
            assert {first_line(caller) for caller in callers} == {b"HTTP/1.1 200 OK"}
            for one in silent:
                with contextlib.suppress(ConnectionError):
                    assert one.recv(1) == b""
    finally:
        process.terminate()
        _, errors = process.communicate()
    assert errors == ""


@pytest.mark.parametrize(("sent", "lines"), [(signal.SIGTERM, 0), (signal.SIGINT, 1)])
def test_a_signal_ends_a_busy_server_and_no_request_fails(sent, lines):
    """It answers what it has, and takes no more. It listens to another loopback address."""
    flags = ["--host", "127.0.0.2", "--port", "0", "--workers", "1"]
    process = python("-m", "cobalt", "sandbox", "serve", *flags)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    if not line:
        pytest.skip(process.stderr.read())
    statuses, one = Counter[int](), Counter({200: 1})

    def ask(number: int) -> None:
        run = {**RUN, "code": f"import time; time.sleep(0.2 + {number} / 100)"}  # so that some are always under way
        with contextlib.suppress(OSError, http.client.HTTPException):  # refused, or hung up on between two requests
            while True:
                statuses[post(f"{line.split()[0]}/run_code", run)[0]] += 1

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    try:
        for caller in callers:
            caller.start()
        wait_for(lambda: statuses >= one)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        for caller in callers:
            caller.join()
    assert line.startswith("http://127.0.0.2:")
    assert (set(statuses), len(errors.splitlines())) == ({200}, lines), errors


def test_serve_listens_to_other_machines_only_with_a_token_and_to_free_ports(monkeypatch, capsys):
    monkeypatch.delenv("COBALT_HTTP_TOKEN", raising=False)
    assert run_cobalt("sandbox", "serve", "--host", "0.0.0.0") == 2
    assert "COBALT_HTTP_TOKEN" in one_complaint(capsys)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run_cobalt("sandbox", "serve", "--port", taken.getsockname()[1]) == 2
    assert "Address already in use" in one_complaint(capsys)


def test_serve_listens_to_loopback_of_ipv6_and_prints_its_url():
    process = python("-m", "cobalt", "sandbox", "serve", "--host", "::1", "--port", "0", "--workers", "1")
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if line:
            assert line.startswith("http://[::1]:")
            assert status_of(line.split()[0])["workers"] == 1
    finally:
        process.terminate()
        _, errors = process.communicate()
    if not line:
        pytest.skip(errors)


def test_run_prints_a_record_and_exits_by_it(tmp_path, capsys):
    (tmp_path / "tests.json").write_text(json.dumps(TESTS))
    for name, code, verdict, exit_code in (("right.py", ADD, "passed", 0), ("wrong.py", "print(3)", "wrong_answer", 1)):
        (tmp_path / name).write_text(code)
        assert run_cobalt("sandbox", "run", tmp_path / name, "--tests", tmp_path / "tests.json") == exit_code
        assert json.loads(capsys.readouterr().out)["verdicts"][1] == verdict


def test_what_cannot_be_run_is_one_line_and_exit_code_2(tmp_path, capsys):
    for name, text in {"a.py": ADD.encode(), "latin.py": b"# \xe9"}.items():
        (tmp_path / name).write_bytes(text)
    for name, tests in {"tests": TESTS, "none": {}, "checked": {**TESTS, "checker": "nope"}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(tests))
    for program, tests, flags, complaint in (
        ("a.py", "none", (), "none.json: tests need a list 'inputs'"),
        ("a.py", "checked", (), "checked.json: "),
        ("latin.py", "tests", (), "latin.py: 'utf-8' codec"),
        ("a.py", "tests", ("--cpu_limit_s", "-1"), "--cpu_limit_s=-1"),
        ("a.py", "tests", ("--memory_limit_mb", "0"), "--memory_limit_mb=0"),
        (
            "a.py",
            "tests",
            ("--memory_limit_mb", "8"),
            "--memory_limit_mb=8: Input should be greater than",
        ),
        ("a.py", "tests", ("--max_open_files", "2"), "--max_open_files=2: Input should be greater than"),
        ("a.py", "tests", ("--workers", "2"), "--workers"),
    ):
        words = ("sandbox", "run", tmp_path / program, "--tests", tmp_path / f"{tests}.json", *flags)
        code, (_, errors) = run_cobalt(*words), capsys.readouterr()
        assert (code, errors.count("\n"), complaint in errors) == (2, 1, True), errors


WITHOUT = """
import sys
from cobalt.__main__ import main
run, codes = sys.argv[1:], []
for words in (run, ["serve", "--port=-1"]):
    sys.argv = ["cobalt", "sandbox", *words]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
print(codes, {"ray", "torch", "transformers"} & set(sys.modules))
"""


def test_the_commands_of_the_sandbox_need_neither_ray_nor_torch(tmp_path):
    (tmp_path / "tests.json").write_text(json.dumps(TESTS))
    (tmp_path / "a.py").write_text(ADD)
    words = ["run", str(tmp_path / "a.py"), "--tests", str(tmp_path / "tests.json")]
    printed, errors = python("-c", WITHOUT, *words).communicate()
    assert printed.splitlines()[-1:] == ["[0, 2] set()"], errors


ENDS = (
    "given",
    "given",
    "given",
    "given + (given == 2)",
    "given // (given - 3)",
    "given if given < 3 else bytearray(1 << 31)",
)


def one_of_500(number: int) -> str:
    """Right on all tests, or wrong, failing or (a few) too large on some."""
    end = ENDS[number % 5 if number % 50 else 5]
    return f"given = int(input())\nprint({number}, {end})\n"


@pytest.mark.slow
def test_verls_own_reward_scores_500_programs_as_our_client_does(url):
    """veRL 0.5.0, unmodified. It sends a request for each test."""
    verl = pytest.importorskip("verl.utils.reward_score.sandbox_fusion")
    programs = [one_of_500(number) for number in range(500)]
    inputs = [f"{value}\n" for value in range(1, 5)]
    tests = [{"inputs": inputs, "outputs": [f"{number} {text}" for text in inputs]} for number in range(500)]
    given = [{"code": code, "test_cases": one} for code, one in zip(programs, tests, strict=True)]
    ours = [
        sum(record["passing"]) / len(inputs)
        for start in range(0, 500, 100)
        for record in post(url, {"programs": given[start : start + 100]})[1]["results"]
    ]
    slots = threading.Semaphore(64)

    def score(code: str, one: dict) -> float:
        return verl.compute_score(f"{url}/run_code", slots, 1024, f"```python\n{code}```", one)[0]

    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        theirs = list(pool.map(score, programs, tests))
    print(f"{len(programs) * len(inputs) / (time.monotonic() - started):.0f} tests/s by veRL's client")
    assert theirs == ours
    assert Counter(ours) == {1.0: 290, 0.75: 100, 0.25: 100, 0.5: 10}


PYPI_CLIENT = """
import asyncio, sys
from sandbox_fusion import RunCodeRequest, run_code, run_code_async, set_endpoint
set_endpoint(sys.argv[1])
files = {"a.txt": "aGk="}
asked = RunCodeRequest(code="print(open('a.txt').read(), input())", language="python", stdin="x", files=files)
print(run_code(asked).run_result.stdout, end="")
async def main():
    answers = await asyncio.gather(*(run_code_async(asked) for _ in range(20)))
    print({(answer.status.value, answer.run_result.stdout) for answer in answers})
asyncio.run(main())
"""


@pytest.mark.slow
def test_the_client_on_pypi_works(url, tmp_path):
    """``sandbox-fusion`` in a folder of its own; skipped where it cannot be downloaded."""
    wanted = ["sandbox-fusion==0.3.7", "requests", "aiohttp", "tenacity", "tqdm", "pydantic"]
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path), *wanted]
    if subprocess.run(install, check=False, capture_output=True).returncode != 0:
        pytest.skip("sandbox-fusion could not be installed")
    printed, errors = python("-c", PYPI_CLIENT, url, PYTHONPATH=str(tmp_path)).communicate()
    assert printed == "hi x\n{('Success', 'hi x\\n')}\n", errors
