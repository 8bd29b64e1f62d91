"""Messages between the executor and its workers: a length and a pickle. Both ends are ours; no program sees them."""

import pickle
import struct
from typing import Any

LENGTH = struct.Struct("!Q")


def frame(message: Any) -> bytes:
    """A message as it goes over the socket."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def read_message(stream: Any) -> Any:
    """The next message of a blocking binary stream; ``EOFError`` at its end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(*LENGTH.unpack(head)))
