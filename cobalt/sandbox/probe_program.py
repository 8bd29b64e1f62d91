"""Attempts to escape. The self-test and the tests run this file's text as a program *inside* the sandbox.

Standard input: one JSON object with ``names`` (probes to run; all if empty) and the canaries that the outside laid out:
``file`` (a readable secret), ``socket`` (a listening unix socket), ``datagram`` (a bound one), ``abstract`` (one
without a path), ``pid`` (of a process outside). Standard output: per probe ``name: contained``, or ``name: ESCAPED``
and what came out.

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
COLUMN = int(os.uname().machine == "aarch64")
SYSCALLS = {
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execveat": (322, 281),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "mknodat": (259, 33),
    "prlimit64": (302, 261),
    "capget": (125, 90),
    "pidfd_open": (434, 434),
    "open_tree": (428, 428),
    "init_module": (175, 105),
    "personality": (135, 92),
    "fchmodat": (268, 53),
    "utimensat": (280, 88),
    "name_to_handle_at": (303, 264),
    "tgkill": (234, 131),
}
NEWUSER, NEWNS, SIGCHLD = 0x10000000, 0x00020000, 17
MS_REMOUNT, MS_BIND = 32, 4096
CANARY = {}


def call(name, *arguments):
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(SYSCALLS[name][COLUMN]), *values)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def child_of(result):
    """What a successful fork means; its child must not go on."""
    if result == 0:
        os._exit(0)
    return f"process {result}"


def mount_tmpfs():
    return f"mounted {call('mount', b'none', b'/tmp', b'tmpfs', 0, None)}"


def remount_root_writable():
    return f"remounted {call('mount', b'none', b'/', None, MS_REMOUNT | MS_BIND, None)}"


def new_user_namespace():
    return f"unshared {call('unshare', NEWUSER | NEWNS)}"


def join_namespace():
    return f"joined {call('setns', 0, 0)}"


def change_root():
    return f"changed {call('chroot', b'/')}"


def copy_mount_tree():
    return f"tree {call('open_tree', -100, b'/', 1)}"


def trace_parent():
    return f"attached {call('ptrace', 16, os.getppid() or 1, 0, 0)}"


def trace_outside():
    return f"attached {call('ptrace', 16, CANARY['pid'], 0, 0)}"


def read_parent_memory():
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
    return f"read {call('process_vm_readv', os.getppid() or 1, here, 1, here, 1, 0)}"


def load_bpf():
    array = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    return f"map {call('bpf', 0, array, 128)}"


def open_perf():
    return f"counter {call('perf_event_open', ctypes.create_string_buffer(128), 0, -1, -1, 0)}"


def open_userfaultfd():
    return f"descriptor {call('userfaultfd', 1)}"


def set_up_io_uring():
    return f"ring {call('io_uring_setup', 1, ctypes.create_string_buffer(128))}"


def read_keyring():
    return f"key {call('keyctl', 0, -3, 0)}"


def fork():
    return child_of(os.fork())


def raw_clone():
    return child_of(call("clone", SIGCHLD, 0, 0, 0, 0))


def raw_clone3():
    arguments = (ctypes.c_uint64 * 11)(*[0] * 11)
    arguments[4] = SIGCHLD
    return child_of(call("clone3", arguments, 88))


def clone_user_namespace():
    return child_of(call("clone", SIGCHLD | NEWUSER, 0, 0, 0, 0))


def spawn():
    return f"process {os.posix_spawn(sys.executable or '/bin/sh', ['sh'], {})}"


def execute():
    os.execv("/bin/sh", ["/bin/sh", "-c", "echo execute: ESCAPED"])


def execute_descriptor():
    return f"executed {call('execveat', 0, b'', None, None, 0x1000)}"


def anonymous_file():
    return f"descriptor {call('memfd_create', b'x', 0)}"


def shared_memory():
    return f"segment {call('shmget', 0, 4096, 0o1777)}"


def signal_parent():
    os.kill(os.getppid() or 1, signal.SIGTERM)
    return "sent"


def signal_outside():
    os.kill(CANARY["pid"], 0)
    return "could have signalled"


def signal_everybody():
    os.kill(-1, 0)
    return "could have signalled"


def signal_thread():
    return f"sent {call('tgkill', os.getppid() or 1, os.getppid() or 1, 0)}"


def open_process():
    return f"descriptor {call('pidfd_open', CANARY['pid'], 0)}"


def limit_parent():
    limits = (ctypes.c_uint64 * 2)(1 << 20, 1 << 20)
    return f"limited {call('prlimit64', os.getppid() or 1, 7, limits, None)}"


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
    return f"capabilities {list(data)}" if any(data) else None


def tcp_socket():
    return f"socket {socket.socket(socket.AF_INET, socket.SOCK_STREAM).fileno()}"


def udp_socket():
    return f"socket {socket.socket(socket.AF_INET, socket.SOCK_DGRAM).fileno()}"


def raw_socket():
    return f"socket {socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno()}"


def netlink_socket():
    return f"socket {socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).fileno()}"


def path_socket():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(CANARY["socket"])
    return "connected"


def abstract_socket():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + CANARY["abstract"])
    return "connected"


def datagram_pair_to_path():
    left, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return f"sent {left.sendto(b'x', CANARY['datagram'])}"


def read_secret_file():
    with open(CANARY["file"]) as file:
        return file.read()


def read_password_file():
    with open("/etc/shadow") as file:
        return file.read(20)


def read_account_file():
    with open("/etc/passwd") as file:
        return file.read(20)


def read_environment_of_others():
    for pid in (os.getppid(), 1, CANARY["pid"], "self"):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return repr(file.read(50))
        except OSError:
            continue
    return None


def list_processes():
    return f"{[name for name in os.listdir('/proc') if name.isdigit()]}" if os.listdir("/proc") else None


def list_home_directories():
    found = []
    for path in ("/root", "/home", os.path.dirname(CANARY["file"])):
        try:
            found += [path] if os.listdir(path) and not path_holds_libraries(path) else []
        except OSError:
            continue
    return f"{found}" if found else None


def path_holds_libraries(path):
    return any(entry.startswith(path.rstrip("/") + "/") for entry in sys.path)


def inherited_environment():
    known = {"PYTHONHASHSEED", "PYTHONUTF8", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "LANG",
             "LD_BIND_NOW", "LC_CTYPE"}  # fmt: skip
    strange = set(os.environ) - known
    return f"{sorted(strange)}" if strange else None


def inherited_descriptors():
    extra = []
    for descriptor in range(3, 1024):
        try:
            os.fstat(descriptor)
            extra.append(descriptor)
        except OSError:
            continue
    return f"{extra}" if extra else None


def write_somewhere():
    written = []
    for directory in ("/tmp", "/dev/shm", "/var/tmp", "/", "/dev", os.path.dirname(os.__file__), os.getcwd()):
        try:
            with open(os.path.join(directory, "cobalt-probe"), "w") as file:
                file.write("x")
            written.append(directory)
        except OSError:
            continue
    return f"{written}" if written else None


def change_file_mode():
    return f"changed {call('fchmodat', -100, os.fsencode(os.__file__), 0o777)}"


def change_file_times():
    return f"changed {call('utimensat', -100, os.fsencode(os.__file__), None, 0)}"


def remove_library():
    os.unlink(os.__file__)
    return "removed"


def truncate_library():
    os.truncate(os.__file__, 0)
    return "truncated"


def make_device():
    return f"made {call('mknodat', -100, b'/tmp/probe-device', 0o60666, 0xFE00)}"


def read_block_device():
    for name in ("vda", "sda", "nvme0n1", "mem", "kmsg", "fuse", "kvm"):
        try:
            with open(f"/dev/{name}", "rb") as file:
                return f"{name}: {file.read(8)!r}"
        except OSError:
            continue
    return None


def file_handle():
    handle = (ctypes.c_uint32 * 34)(128)
    return f"handle {call('name_to_handle_at', -100, b'/', handle, ctypes.byref(ctypes.c_int()), 0)}"


def load_kernel_module():
    return f"loaded {call('init_module', b'', 0, b'')}"


def change_personality():
    return f"changed {call('personality', 0x0040000)}"


NOT_PROBES = {"call", "child_of", "path_holds_libraries", "main"}
PROBES = {
    name: value for name, value in list(globals().items()) if type(value) is type(call) and name not in NOT_PROBES
}


def main():
    CANARY.update(json.loads(sys.stdin.read()))
    for name in CANARY["names"] or PROBES:
        try:
            escaped = PROBES[name]()
        except OSError:
            escaped = None
        print(f"{name}: contained" if escaped is None else f"{name}: ESCAPED, {escaped}", flush=True)


if __name__ == "__main__":
    main()
