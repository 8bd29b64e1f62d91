"""A worker: the trusted process between the executor and one sandbox. ``python -m cobalt.sandbox.worker DESCRIPTOR
PARENT``.

First it gets the settings, which it answers with None or with what is missing; then one program at a time, which it
answers with its ``ExecutionResult``, or at the end of its turn with its ``Progress``. A sandbox that is lost takes its
worker with it: the executor starts another one and tries the program again.
"""

import os
import socket
import sys

from cobalt.errors import InfraError, SetupError
from cobalt.records import ExecutionResult
from cobalt.sandbox.inside.kernel import die_with_parent
from cobalt.sandbox.judge import JudgeSandbox
from cobalt.sandbox.own_checker import CheckerFailed
from cobalt.sandbox.sealed import Zygote
from cobalt.sandbox.suite import Sandboxes, run_suite
from cobalt.sandbox.wire import frame, read_message


def main(descriptor: int, parent: int) -> None:
    """Serve until the executor closes its end, or dies."""
    die_with_parent(parent)
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as stream:
        mode, limits, checker, niceness = read_message(stream)
        os.nice(niceness)
        try:
            zygote = Zygote(mode, limits)
        except SetupError as error:
            connection.sendall(frame(str(error)))
            return
        connection.sendall(frame(None))
        judges = JudgeSandbox(mode, limits)
        sandboxes = Sandboxes(zygote, judges, checker)
        try:
            while True:
                code, tests, progress, turn_s = read_message(stream)
                try:
                    result = run_suite(sandboxes, code, tests, progress, turn_s)
                except CheckerFailed as error:
                    result = ExecutionResult.infra(len(tests), str(error))
                connection.sendall(frame(result))
        except (EOFError, InfraError, ConnectionError) as error:
            if isinstance(error, InfraError):
                print(f"cobalt.sandbox.worker: {error}", file=sys.stderr)
        finally:
            zygote.close()
            judges.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
