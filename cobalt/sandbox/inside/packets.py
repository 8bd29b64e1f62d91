"""What goes over the sockets between the worker and the processes inside; both sides import this file."""

import struct

# from the zygote
UNSHARED = b"unshared"  # it has its namespaces and waits for its user map
READY = b"ready"  # it has started; from a program: it has compiled
ENDED = struct.Struct("i")  # the wait status of a program's process
# from either
NO_TASKS = b"no tasks"  # the kernel starts no process for it: its user or its control group has too many
# to the zygote
PROGRAM = struct.Struct("2i")  # descriptors of a program's channel and of its source
PLAIN, WITH_FILES = b"p", b"f"  # sent with them: whether the program has files in a folder of its own
# from a program
STARTED = b"started"  # its process is set up and turns to the source: from here on its end is the program's doing
NO_FILES = b"no files: "  # instead of that; the reason follows. Its files could not be written
OVERDUE = struct.Struct("dd")  # CPU s, wall s of a test at its wall limit; the answer: how much longer it may run
RESULT = struct.Struct("iiddl")  # why it killed the test, wait status, CPU s, wall s, peak of its memory in KiB
# to a program
TEST = struct.Struct("dd")  # CPU limit, wall limit (seconds)
DESCRIPTORS = struct.Struct("3i")  # with a test: those of input, output and error output
MORE_TIME = struct.Struct("d")  # seconds; 0 if the test is to be killed

NOT_KILLED, KILLED_CPU, KILLED_WALL = 0, 1, 2
EXIT_MEMORY = 137  # exit code of a test that a MemoryError ended
FILES = "/cobalt-files"  # where a program's files lie in mode namespaces: Python or packages may lie under /tmp
