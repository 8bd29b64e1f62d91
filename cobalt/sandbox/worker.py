"""A worker: the trusted process between the executor and one sandbox. ``python -m cobalt.sandbox.worker DESCRIPTOR
PARENT``.

First it gets the settings, which it answers with None or with what is missing; then one program at a time, which it
answers with its ``ExecutionResult`` (or ``Output``s, if nobody judges it), or at the end of its turn with its
``Progress``. A sandbox that is lost takes its worker with it: the executor starts another one and tries the program
again.

A message is a length and a pickle. Both ends are ours, and no program sees them.
"""

import os
import pickle
import socket
import struct
import sys
from typing import Any, BinaryIO

from cobalt.sandbox.errors import InfraError, SetupError
from cobalt.sandbox.inside.kernel import die_with_parent
from cobalt.sandbox.suite import SuiteRunner

LENGTH = struct.Struct("!Q")


def frame(message: Any) -> bytes:
    """A message as it goes over the socket."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def _read_message(stream: BinaryIO) -> Any:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(*LENGTH.unpack(head)))


def main(descriptor: int, parent: int) -> None:
    """Serve until the executor closes its end, or dies."""
    die_with_parent(parent)
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as stream:
        *settings, niceness = _read_message(stream)
        os.nice(niceness)
        try:
            runner = SuiteRunner(*settings)
        except SetupError as error:
            connection.sendall(frame(str(error)))
            return
        connection.sendall(frame(None))
        try:
            while True:
                code, tests, files, progress, terms = _read_message(stream)
                if files is None:
                    result = runner.run(code, tests, progress, terms)
                else:
                    result = runner.run_inputs(code, tests, files, terms)
                connection.sendall(frame(result))
        except (InfraError, SetupError) as error:  # the latter from the sandbox of checkers
            print(f"cobalt.sandbox.worker: {error}", file=sys.stderr)
        except (EOFError, ConnectionError):
            return
        finally:
            runner.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
