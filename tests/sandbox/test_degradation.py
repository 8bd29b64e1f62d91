"""Where no sandbox holds, nothing runs: a loud refusal that says what is missing, and exit code 3."""

import errno
import shutil
import subprocess
import sys

import pytest
from places import ROOT, run_suite_runner
from suite_runner import refuse

from cobalt.errors import SetupError
from cobalt.sandbox import Limits, selftest
from cobalt.sandbox.selftest import choose_mode
from cobalt.sandbox.zygote import Zygote

CHECK = [sys.executable, "-m", "cobalt", "sandbox", "check"]


def _check(*refused: str, quiet: bool = False) -> "subprocess.CompletedProcess[str]":
    command = [*CHECK, "--quiet"] if quiet else CHECK
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, preexec_fn=lambda: refuse(refused)
    )


def test_check_reports_the_mode_that_holds_and_needs_nothing_installed(namespaces):
    """Neither packages nor a bwrap binary."""
    python, *words = CHECK

    def check(*flags: str) -> "subprocess.CompletedProcess[str]":
        command = [python, "-S", *words, *flags]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PATH": "/nonexistent"})

    done, quiet = check(), check("--quiet")
    assert done.returncode == 0, done.stderr
    assert "mode namespaces: holds" in done.stdout
    assert "Programs run in mode namespaces." in done.stdout
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


ALONE = """
import asyncio
from cobalt.sandbox import ExecutionResult, Executor, TestCases, Verdict

async def main():
    async with Executor(workers=1) as executor:
        return await executor.run("print(input()[::-1])", TestCases(("abc", "ab"), ("cba", "ab")))

result = asyncio.run(main())
assert result == ExecutionResult((Verdict.PASSED, Verdict.WRONG_ANSWER), ("cba", "ba"), ("", ""), cpu_limit_s=4.0)
"""


def test_the_sandbox_needs_nothing_else_of_the_package_and_nothing_installed(namespaces, tmp_path):
    shutil.copytree(ROOT / "cobalt" / "sandbox", tmp_path / "cobalt" / "sandbox")
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", ALONE], check=False, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_check_refuses_without_namespaces_and_landlock():
    done = _check("namespaces", "landlock")
    assert done.returncode == 3
    assert "mode namespaces: unshare: Operation not permitted" in done.stdout
    assert "mode landlock: Landlock version 0" in done.stdout
    assert "--security-opt seccomp=unconfined" in done.stdout  # the test refuses by a filter, as containers do
    assert "lsm=" in done.stdout
    assert "will not be run" in done.stdout


def test_quiet_check_says_one_line_on_stderr():
    done = _check("namespaces", "landlock", quiet=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert done.stderr.startswith("cobalt sandbox check: error: no sandbox: mode namespaces: ")


def test_executor_refuses_without_any_sandbox():
    done = run_suite_runner("--unprivileged", "--without", "namespaces", "landlock")
    assert done.returncode != 0
    assert "SetupError: no sandbox: mode namespaces: " in done.stderr
    assert done.stdout == ""


def test_namespaces_refused_by_sysctl():
    command = "echo 0 > /proc/sys/user/max_user_namespaces && exec " + " ".join(CHECK)
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", command], check=False, capture_output=True, text=True, cwd=ROOT
    )
    if "unshare failed" in done.stderr:
        pytest.skip("this machine itself refuses user namespaces")
    assert "mode namespaces: unshare: No space left on device" in done.stdout
    assert "sysctl" in done.stdout


def test_an_escaped_probe_rules_a_mode_out(monkeypatch, namespaces):
    monkeypatch.setattr(selftest, "probe", lambda zygote: {"fork": "contained", "tcp_socket": "ESCAPED, socket 3"})
    with pytest.raises(SetupError, match="not contained: tcp_socket"):
        choose_mode("namespaces")


def test_another_python_inside_rules_a_mode_out(monkeypatch, namespaces):
    monkeypatch.setattr(sys, "version", f"{sys.version}, another build")
    with pytest.raises(SetupError, match=r"another version of Python than this one .*LD_LIBRARY_PATH"):
        choose_mode("namespaces")


def test_a_lack_of_tasks_is_not_blamed_on_the_kernel(monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(SetupError, match="too many processes and threads") as caught:
        choose_mode("namespaces")
    assert "sysctl" not in str(caught.value)
    with pytest.raises(SetupError, match="too many processes and threads"):
        Zygote("namespaces", Limits())  # as a worker starts it


def test_probes_that_do_not_run_rule_a_mode_out(monkeypatch, namespaces, tmp_path):
    silent = tmp_path / "silent.py"
    silent.write_text("")
    monkeypatch.setattr(selftest, "PROBE_PROGRAM", silent)
    with pytest.raises(SetupError, match=r"not contained: .*tcp_socket"):
        choose_mode("namespaces")
