"""Memory is accounted per program: what fits runs, what does not is refused at the start, a shortage is no verdict."""

import json
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from resource import RLIMIT_NPROC

import pytest
from places import start_script
from waiting import wait_for

from cobalt.errors import SetupError
from cobalt.sandbox import Executor, Limits, confinement, limits
from cobalt.sandbox.limits import affordable_workers, default_workers, memory_mb

MIB = 1 << 20


def _lay_out(monkeypatch: pytest.MonkeyPatch, root: Path, groups: str, files: dict[str, str], total_mb: int) -> None:
    """A machine of ``total_mb`` with these lines of /proc/self/cgroup and these limit files."""
    monkeypatch.setattr(limits, "_GROUPS", root)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    texts = {"/proc/self/cgroup": groups, "/proc/meminfo": f"MemTotal:  {total_mb << 10} kB\nMemFree:  1 kB\n"}
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: texts.get(str(path)) or read(path))


@pytest.mark.parametrize(
    ("groups", "limit_files", "expected_mb"),
    [
        ("0::/\n", {}, 8000),
        ("0::/\n", {"memory.max": "max\n"}, 8000),
        ("0::/\n", {"memory.max": f"{1000 * MIB}\n"}, 1000),
        ("0::/a/b\n", {"a/memory.max": f"{1000 * MIB}\n", "a/b/memory.max": f"{2000 * MIB}\n"}, 1000),
        ("0::/a\n", {"a/memory.max": f"{9000 * MIB}\n"}, 8000),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": f"{1000 * MIB}\n"}, 1000),
        ("4:memory:/docker/x\n", {"memory/memory.limit_in_bytes": f"{1000 * MIB}\n"}, 1000),
    ],
)
def test_the_smallest_limit_around_counts(groups, limit_files, expected_mb, monkeypatch, tmp_path):
    _lay_out(monkeypatch, tmp_path, groups, limit_files, 8000)
    assert memory_mb() == expected_mb


def test_default_workers_are_as_many_as_fit(monkeypatch):
    monkeypatch.setattr(limits, "memory_mb", lambda: 2500)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert default_workers(Limits(memory_limit_mb=134, output_limit_mb=25)) == 5  # and 16 MiB in open files
    assert affordable_workers(Limits(memory_limit_mb=1134, output_limit_mb=25)) == 1
    with pytest.raises(SetupError, match=r"may use 2502 MiB .* there are 2500 MiB"):
        affordable_workers(Limits(memory_limit_mb=1135, output_limit_mb=25))


@pytest.mark.parametrize("name", ["AS", "FSIZE", "NOFILE", "NPROC"])
async def test_limits_above_what_this_process_may_give_are_refused(name, monkeypatch):
    of = getattr(limits.resource, f"RLIMIT_{name}")
    monkeypatch.setattr(limits.resource, "getrlimit", lambda asked: (9, 9) if asked == of else (-1, -1))
    with pytest.raises(SetupError, match=f"the hard limit RLIMIT_{name} here is 9"):
        await Executor(workers=1).start()


async def test_a_user_with_too_many_tasks_is_told_so(monkeypatch):
    monkeypatch.setattr(limits, "tasks_of", lambda user: 5000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(limits.resource, "getrlimit", lambda asked: (5010, 5010) if asked == RLIMIT_NPROC else (-1, -1))
    with pytest.raises(SetupError, match="RLIMIT_NPROC here is 5010, and programs may use 64 beside the 5000 tasks"):
        await Executor(workers=1).start()


def test_tasks_that_the_user_has_anyway_are_no_programs(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    most = []
    for tasks in (0, 3000):
        monkeypatch.setattr(confinement, "tasks_of", lambda user, tasks=tasks: tasks)
        most.append(confinement.zygote_config("landlock", Limits())["max_tasks"])
    _, hard = resource.getrlimit(RLIMIT_NPROC)
    assert hard != resource.RLIM_INFINITY or most[1] - most[0] == 3000


def test_threads_are_tasks():
    beside = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(3)]
    for thread in beside:
        thread.start()
    assert limits.tasks_of(os.getuid()) > len(beside)
    assert limits.tasks_of(1 << 29) == 0


async def test_workers_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "memory_mb", lambda: 1000)
    with pytest.raises(SetupError, match=r"workers=4 needs more memory .* at most 2"):
        await Executor(workers=4, memory_limit_mb=160).start()


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of its own, whose memory can be limited."""
    path = Path(f"/sys/fs/cgroup/memory/cobalt-test-{os.getpid()}")
    if not path.parent.is_dir():
        path = Path(f"/sys/fs/cgroup/{path.name}")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no control groups to be made here: {error}")
    try:
        yield path
    finally:
        # what was killed stays in its group until the kernel has taken it apart
        wait_for(lambda: not (path / "cgroup.procs").read_text())
        path.rmdir()


def test_programs_never_share_too_little_memory_and_a_shortage_of_the_machine_is_no_verdict(place, group):
    """Three programs of 350 MB that may use 415, in 1000 MB: one worker, however many cores there are.

    Then one in each lane, judged by programs that use 350 MB too. Two at a time in each would not fit. Then the group
    shrinks: the program that no longer fits is ended from outside, five times.
    """
    file = next((group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists()), None)
    if file is None:
        pytest.skip("no memory controller here")
    file.write_text(str(1000 * MIB))
    settings = json.dumps({"use_mb": 350, "memory_limit_mb": 415, "shrink_to_mb": 200})
    process = start_script("hungry.py", *place.arguments, "--group", str(group), settings)
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]
    found = json.loads(output)
    assert found.pop("short") == ["infra_error"]
    assert found == {"workers": 1, "verdicts": ["passed"] * 3, "checked": ["passed"] * 2}
