"""Attempts to escape. The self-test and the tests run this file's text as a program *inside* the sandbox.

Standard input: one JSON object with ``names`` (probes to run; all if empty), ``numbers`` (of system calls) and the
canaries that the outside laid out: ``file`` (a readable secret), ``socket`` (a listening unix socket), ``datagram`` (a
bound one), ``abstract`` (one without a path), ``pid`` (of a process outside). Standard output: per probe
``name: contained``, or ``name: ESCAPED`` and what came out.

A probe returns what it got hold of, or None; ``OSError`` is what it should meet.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS, SIGCHLD = 0x10000000, 0x00020000, 17
MS_REMOUNT, MS_BIND = 32, 4096
HERE = -100  # AT_FDCWD
GIVEN = {}


def call(name, *arguments):
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(GIVEN["numbers"][name]), *values)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def parent():
    return os.getppid() or 1


def read(path, size=-1):
    with open(path, "rb") as file:
        return file.read(size)


def child_of(result):
    """What a successful fork means; its child must not go on."""
    if result == 0:
        os._exit(0)
    return f"process {result}"


def connect(address):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
    return "connected"


def opened(family, kind):
    return f"socket {socket.socket(family, kind).fileno()}"


def which(attempt, things):
    """The things with which the attempt finds anything; None if there are none."""
    reached = []
    for thing in things:
        try:
            reached += [thing] if attempt(thing) else []
        except OSError:
            continue
    return reached or None


def read_parent_memory():
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
    return call("process_vm_readv", parent(), here, 1, here, 1, 0)


def raw_clone3():
    arguments = (ctypes.c_uint64 * 11)(*[0] * 11)
    arguments[4] = SIGCHLD
    return child_of(call("clone3", arguments, 88))


def raise_memory_limit():
    try:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError:
        return None
    return "raised"


def capabilities():
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    call("capget", header, data)
    return list(data) if any(data) else None


def datagram_pair_to_path():
    left, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return left.sendto(b"x", GIVEN["datagram"])


def list_home_directories():
    def holds_no_libraries(path):
        return os.listdir(path) and not any(entry.startswith(path.rstrip("/") + "/") for entry in sys.path)

    return which(holds_no_libraries, ("/root", "/home", os.path.dirname(GIVEN["file"])))


def inherited_environment():
    known = {"PYTHONHASHSEED", "PYTHONUTF8", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "LANG",
             "LD_BIND_NOW", "LC_CTYPE", "TZ"}  # fmt: skip
    return sorted(set(os.environ) - known) or None


def write_somewhere():
    def write(directory):
        with open(os.path.join(directory, "cobalt-probe"), "w") as file:
            return file.write("x")

    return which(write, ("/tmp", "/dev/shm", "/var/tmp", "/", "/dev", os.path.dirname(os.__file__), os.getcwd()))


def file_handle():
    handle = (ctypes.c_uint32 * 34)(128)
    return call("name_to_handle_at", HERE, b"/", handle, ctypes.byref(ctypes.c_int()), 0)


PROBES = {
    "mount_tmpfs": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "remount_root_writable": lambda: call("mount", b"none", b"/", None, MS_REMOUNT | MS_BIND, None),
    "new_user_namespace": lambda: call("unshare", NEWUSER | NEWNS),
    "join_namespace": lambda: call("setns", 0, 0),
    "change_root": lambda: call("chroot", b"/"),
    "copy_mount_tree": lambda: call("open_tree", HERE, b"/", 1),
    "trace_parent": lambda: call("ptrace", 16, parent(), 0, 0),
    "trace_outside": lambda: call("ptrace", 16, GIVEN["pid"], 0, 0),
    "read_parent_memory": read_parent_memory,
    "load_bpf": lambda: call("bpf", 0, (ctypes.c_uint32 * 32)(2, 4, 4, 1), 128),
    "open_perf": lambda: call("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0),
    "open_userfaultfd": lambda: call("userfaultfd", 1),
    "set_up_io_uring": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(128)),
    "read_keyring": lambda: call("keyctl", 0, -3, 0),
    "fork": lambda: child_of(os.fork()),
    "raw_clone": lambda: child_of(call("clone", SIGCHLD, 0, 0, 0, 0)),
    "raw_clone3": raw_clone3,
    "clone_user_namespace": lambda: child_of(call("clone", SIGCHLD | NEWUSER, 0, 0, 0, 0)),
    "spawn": lambda: os.posix_spawn(sys.executable or "/bin/sh", ["sh"], {}),
    "execute": lambda: os.execv("/bin/sh", ["/bin/sh", "-c", "echo execute: ESCAPED"]),
    "execute_descriptor": lambda: call("execveat", 0, b"", None, None, 0x1000),
    "anonymous_file": lambda: call("memfd_create", b"x", 0),
    "shared_memory": lambda: call("shmget", 0, 4096, 0o1777),
    "signal_parent": lambda: [os.kill(parent(), signal.SIGTERM)],  # a list, because None would mean contained
    "signal_outside": lambda: [os.kill(GIVEN["pid"], 0)],
    "signal_everybody": lambda: [os.kill(-1, 0)],
    "signal_thread": lambda: call("tgkill", parent(), parent(), 0),
    "open_process": lambda: call("pidfd_open", GIVEN["pid"], 0),
    "limit_parent": lambda: call("prlimit64", parent(), 7, (ctypes.c_uint64 * 2)(1 << 20, 1 << 20), None),
    "raise_memory_limit": raise_memory_limit,
    "capabilities": capabilities,
    "tcp_socket": lambda: opened(socket.AF_INET, socket.SOCK_STREAM),
    "udp_socket": lambda: opened(socket.AF_INET, socket.SOCK_DGRAM),
    "raw_socket": lambda: opened(socket.AF_PACKET, socket.SOCK_RAW),
    "netlink_socket": lambda: opened(socket.AF_NETLINK, socket.SOCK_RAW),
    "path_socket": lambda: connect(GIVEN["socket"]),
    "abstract_socket": lambda: connect("\0" + GIVEN["abstract"]),
    "datagram_pair_to_path": datagram_pair_to_path,
    "read_secret_file": lambda: read(GIVEN["file"]),
    "read_password_file": lambda: read("/etc/shadow", 20),
    "read_account_file": lambda: read("/etc/passwd", 20),
    "read_environment_of_others": lambda: which(
        lambda pid: [read(f"/proc/{pid}/environ", 50)], (os.getppid(), 1, GIVEN["pid"], "self")
    ),
    "list_processes": lambda: os.listdir("/proc") or None,
    "list_home_directories": list_home_directories,
    "inherited_environment": inherited_environment,
    "inherited_descriptors": lambda: which(os.fstat, range(3, 1024)),
    "write_somewhere": write_somewhere,
    "change_file_mode": lambda: call("fchmodat", HERE, os.fsencode(os.__file__), 0o777),
    "change_file_times": lambda: call("utimensat", HERE, os.fsencode(os.__file__), None, 0),
    "remove_library": lambda: [os.unlink(os.__file__)],
    "truncate_library": lambda: [os.truncate(os.__file__, 0)],
    "make_device": lambda: call("mknodat", HERE, b"/tmp/probe-device", 0o60666, 0xFE00),
    "read_block_device": lambda: which(
        lambda name: [read(f"/dev/{name}", 8)], ("vda", "sda", "nvme0n1", "mem", "kmsg", "fuse", "kvm")
    ),
    "file_handle": file_handle,
    "load_kernel_module": lambda: call("init_module", b"", 0, b""),
    "change_personality": lambda: call("personality", 0x0040000),
}


def main():
    GIVEN.update(json.loads(sys.stdin.read()))
    for name in GIVEN["names"] or PROBES:
        try:
            escaped = PROBES[name]()
        except OSError:
            escaped = None
        print(f"{name}: contained" if escaped is None else f"{name}: ESCAPED, {escaped}", flush=True)


if __name__ == "__main__":
    main()
