"""A folder of results, the places where work runs, and the order of that work.

Each stage is done once per folder: a second run continues where the first was stopped.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, TextIO

from cobalt.errors import EXIT_INTERRUPTED, CobaltError, InputError
from cobalt.records.jsonl import is_taken

ROOT = Path(__file__).resolve().parents[2]
HOLD_SERVICES = """
set -euo pipefail
exec 3>&1 1>&2
source scripts/lib/services.sh
trap stop_services EXIT
start_services "$1" 3>&-
env -0 >&3
printf '\\0' >&3
while read -r -d '' verb model; do
  "${verb}_model" "$model" 3>&-
  printf '\\0' >&3
done
"""
"""A bash that holds the services of a place until its input ends. It answers with its environment, which says where Ray
is, and with an empty text. Then it answers each order with an empty text."""


class StageError(CobaltError):
    """A command of a stage has failed, with ``exit_code``."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code if exit_code > 0 else 128 - exit_code


class Folder:
    """What is done in a folder of results, and who is at work in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.alone: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._changed = threading.Lock()
        self._children: list[subprocess.Popen[Any]] = []
        self._at_work: TextIO | None = None
        self._is_stopping = False

    def done(self, stage: str) -> Path:
        """This file is there if the stage is done, and holds the seconds it took."""
        return self.path / "done" / stage

    def keep_settings(self, text: str) -> None:
        """Raises ``InputError`` if the folder was made with other settings."""
        file = self.path / "settings"
        if file.exists() and (made_with := file.read_text().rstrip("\n")) != text:
            raise InputError(f"{self.path} was made with '{made_with}'; choose another folder")
        (self.path / "done").mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def enter(self) -> None:
        """Raises ``InputError`` if another run, or what a killed one has left, is at work here."""
        (self.path / "taken").mkdir(exist_ok=True)
        (self.path / "logs").mkdir(exist_ok=True)
        file = (self.path / "taken" / "at_work").open("w")
        if is_taken(file):  # our commands inherit the lock: it lasts as long as any of them
            raise InputError(f"another run, or a command that it has left, is still at work in {self.path}")
        self._at_work = file

    def start(self, words: Sequence[str], is_service: bool = False, **options: Any) -> subprocess.Popen[Any]:
        """Start a command in the project's folder, in a process group of its own, which ``stop`` ends."""
        with self._changed:
            if self._is_stopping:
                raise StageError("stopped", EXIT_INTERRUPTED)
            kept = [self._at_work.fileno()] if self._at_work and not is_service else []
            options |= {"cwd": ROOT, "start_new_session": True, "pass_fds": kept}
            child = subprocess.Popen(words, **options)
            self._children.append(child)
        return child

    def wait(self, child: subprocess.Popen[Any]) -> int:
        """The exit code of a command that ``start`` has started."""
        try:
            code = child.wait()
        except BaseException:  # Ctrl-C and the like, in the main thread: it has not reached the command's group
            self.stop()
            child.wait()
            raise
        with self._changed:
            self._children.remove(child)
        return code

    def stop(self) -> None:
        """End all commands; no other is started."""
        with self._changed:
            self._is_stopping = True
            for child in self._children:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGTERM)


class Place:
    """Where one piece of work runs at a time: this machine as it is, or the GPUs ``gpus`` alone.

    With ``number`` it has a Ray of its own, and what is said goes to ``logs/worker-NUMBER.log``.
    """

    def __init__(
        self, folder: Folder, knobs: dict[str, str], number: int | None = None, gpus: str | None = None
    ) -> None:
        self.folder = folder
        self.environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **knobs}
        self.python = self.environment.setdefault("PYTHON", sys.executable)
        if os.path.isabs(self.python):  # ray and serve are beside it
            self.environment["PATH"] = f"{Path(self.python).parent}:{self.environment['PATH']}"
        self.log: TextIO | None = None
        self.log_dir = folder.path / "logs"
        if number is not None:
            self.log = (self.log_dir / f"worker-{number}.log").open("a")
            self.log_dir = self.log_dir / f"worker-{number}"
            self.environment.pop("RAY_ADDRESS", None)
        if gpus is not None:
            self.environment["CUDA_VISIBLE_DEVICES"] = gpus
        self._services: subprocess.Popen[Any] | None = None

    def tell(self, text: str) -> None:
        """A line for this place's log."""
        print(text, file=self.log, flush=True)

    def call(self, *words: object, output: TextIO | int | None = None, knobs: dict[str, str] | None = None) -> None:
        """Run a command. Raises ``StageError``."""
        options = {"env": {**self.environment, **(knobs or {})}, "stdout": output or self.log, "stderr": self.log}
        if code := self.folder.wait(self.folder.start([str(word) for word in words], **options)):
            raise StageError(f"'{' '.join(map(str, words[:4]))} ...' has failed with {code}; see above", code)

    def run(self, *words: object) -> None:
        """Run a script of the project, or a module after ``-m``."""
        self.call(self.python, *words)

    def stage(self, name: str, work: Callable[..., None], *arguments: Any, title: str = "") -> None:
        """Do ``work(*arguments)`` unless it is done in this folder."""
        marker = self.folder.done(name)
        if marker.exists():
            return
        self.tell(f"== {name}: {title or ' '.join([work.__name__, *map(str, arguments)])}")
        started = time.monotonic()
        work(*arguments)
        seconds = int(time.monotonic() - started)
        marker.write_text(f"{seconds}\n")
        self.tell(f"== {name}: {seconds} s")

    def script_stage(self, name: str, *words: object) -> None:
        """A stage that is one command of Python: a script of the project, or a module after ``-m``."""
        self.stage(name, self.run, *words, title=" ".join(map(str, words)))

    @contextmanager
    def services(self) -> Iterator[None]:
        """Ray and the execution service, started where they are missing, stopped at the end. Raises ``StageError``."""
        pipe = subprocess.PIPE
        words = ["bash", "-c", HOLD_SERVICES, "bash", str(self.log_dir)]
        options: dict[str, Any] = {"env": self.environment, "stdin": pipe, "stdout": pipe, "stderr": self.log}
        self._services = self.folder.start(words, is_service=True, **options)
        try:
            while variable := self._answer():
                name, _, value = variable.partition("=")
                self.environment[name] = value
            yield
        except (KeyboardInterrupt, SystemExit):
            self.folder.stop()
            raise
        finally:
            assert self._services.stdin
            with suppress(BrokenPipeError):
                self._services.stdin.close()
            self.folder.wait(self._services)

    def _answer(self) -> str:
        assert self._services and self._services.stdout
        text = bytearray()
        while (byte := self._services.stdout.read(1)) != b"\0":
            if not byte:
                code = self._services.wait()
                raise StageError(f"no services: exit code {code}; see above and {self.log_dir}", code)
            text += byte
        return text.decode()

    def serve_model(self, model: str | Path) -> None:
        """The vLLM app answers with this model, in place of another one."""
        self._order(f"serve {model}")

    def stop_model(self) -> None:
        """End the vLLM app: its GPUs are free."""
        self._order("stop ")

    def _order(self, order: str) -> None:
        assert self._services and self._services.stdin
        with suppress(BrokenPipeError):  # it has died, which no answer tells
            self._services.stdin.write(order.encode() + b"\0")
            self._services.stdin.flush()
        self._answer()


@dataclass(frozen=True)
class Item:
    """A piece of work of a study, which one place does as a whole."""

    kind: str
    name: str
    work: Callable[[Any], None]
    """Called with the place."""
    needs: tuple[str, ...] = ()
    """Items (``KIND/NAME``) that must be done before it."""

    @property
    def id(self) -> str:
        """As others name it in their ``needs``."""
        return f"{self.kind}/{self.name}"

    def marker(self, study: str) -> str:
        """The name of its stage."""
        return f"{study}-{self.kind}-{self.name}"


def work_through(items: Sequence[Item], marker: str, folder: Folder, places: Sequence[Callable[[], Place]]) -> None:
    """Do what is left of ``items``: as many at a time as there are places, each with services of its own.

    Items are taken in the order of their list, each after those that it needs. ``places`` make the places; one alone
    works in the foreground. A place ends at its first failure. The others go on with what does not need the failed
    item. Raises ``CobaltError`` at the end if anything failed.
    """
    left = {item.id: item for item in items if not folder.done(item.marker(marker)).exists()}
    if not left:
        return
    folder.enter()
    if len(places) > 1:
        print(f"== {len(left)} pieces of work side by side, see {folder.path}/logs/worker-*.log", flush=True)
    order = list(left)
    sorter = TopologicalSorter({item.id: [need for need in item.needs if need in left] for item in left.values()})
    sorter.prepare()
    ready: list[str] = []
    at_work: set[str] = set()
    changed = threading.Condition()

    def take() -> Item | None:
        """The first item that is ready, waiting for one; None if none is left but those that need a failed one."""
        with changed:
            while True:
                ready.extend(sorter.get_ready())
                if ready or not at_work:
                    break
                changed.wait()
            if not ready:
                return None
            first = min(ready, key=order.index)
            ready.remove(first)
            at_work.add(first)
            return left[first]

    def work(make: Callable[[], Place]) -> None:
        place = make()
        try:
            with place.services():
                while item := take():
                    try:
                        place.stage(item.marker(marker), item.work, place, title=f"{item.kind} {item.name}")
                        with changed:
                            sorter.done(item.id)
                    finally:
                        with changed:
                            at_work.remove(item.id)
                            changed.notify_all()
        except CobaltError as error:
            if place.log:
                place.tell(f"error: {error}")
                error.args = (place.log.name,)
            raise

    with ThreadPoolExecutor(len(places)) as pool:
        works = [pool.submit(work, make) for make in places[: len(left)]]
        try:
            wait(works)
        except BaseException:  # Ctrl-C and the like
            folder.stop()
            raise
    errors = [error for done in works if (error := done.exception())]
    for error in errors:
        if len(places) == 1 or not isinstance(error, CobaltError):
            raise error
    if errors:
        raise CobaltError(f"stopped early; see {' '.join(map(str, errors))}")
