"""What goes over the sockets between the worker and the processes inside; both sides import this file."""

import struct

STARTED = b"started"
"""A program's process is set up and turns to the source: from here on its end is the program's doing."""

READY = b"ready"
"""The zygote has started, or a program has compiled."""

UNSHARED = b"unshared"
"""The zygote has its namespaces and waits for its user map."""

PROGRAM = struct.Struct("2i")
"""To the zygote: descriptors of a program's channel and of its source."""

TEST = struct.Struct("dd")
"""To a program, with the descriptors of input, output and error output: CPU limit, wall limit (seconds)."""

DESCRIPTORS = struct.Struct("3i")
"""Those that come with a test."""

OVERDUE = b"overdue"
"""From a program: a test has reached its wall limit. The answer says how much longer it may run."""

MORE_TIME = struct.Struct("d")
"""To a program: seconds; 0 if the test is to be killed."""

RESULT = struct.Struct("iidd")
"""From a program: why it killed the test, wait status, CPU s, wall s."""

NOT_KILLED, KILLED_CPU, KILLED_WALL = 0, 1, 2

ENDED = struct.Struct("i")
"""From the zygote: the signal that ended a program's process, or 0."""

EXIT_MEMORY = 137
"""Exit code of a test that a MemoryError ended."""
