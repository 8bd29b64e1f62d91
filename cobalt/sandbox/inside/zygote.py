"""The process that every test of one worker descends from: ``python -S``, with this directory on its path.

It takes a configuration, moves behind the outer wall (mode ``namespaces``), and then forks one process per program. It
stays lean: a fork costs what it has mapped.
"""

import _frozen_importlib_external as importlib_parts  # pyright: ignore[reportMissingImports] - importlib is larger
import _signal  # pyright: ignore[reportMissingImports] - the signal module would bring enum
import _sitebuiltins
import _socket
import _thread
import builtins
import gc
import marshal
import os
import resource
import sys

import kernel
import packets
import program
import seccomp
import walls

for _module in (kernel, packets, program, program.plain, seccomp, walls):
    del sys.modules[_module.__name__]  # a name that a program may use for itself

_CONFIG_BYTES = 1 << 17
_THREAD_STACK = 8 << 20
_OUTSIDE = 0  # the parent's pid, where the parent is in another pid namespace
_MAIN_STACK = 120 << 20  # deep recursion is common; the kernel leaves 128 MiB for the stack


class ListedModules:
    """A finder for ``{name: file or package directory}``, as the directories that hold them cannot be listed.

    Submodules are found as ever, in the directories of their packages.
    """

    def __init__(self, paths):
        self.paths = paths

    def find_spec(self, name, path=None, target=None):
        found = self.paths.get(name) if path is None else None
        if found is None:
            return None
        if found.endswith((".py", ".pyc", ".so")):
            return importlib_parts.spec_from_file_location(name, found)
        file = f"{found}/__init__.py"
        return importlib_parts.spec_from_file_location(name, file, submodule_search_locations=[found])


def _become_program(parent, control, channel_fd, payload_fd, config, ruleset, filters):
    """In the program's process: drop everything that it does not need, then serve tests."""
    with open(payload_fd, "rb") as file:
        *task, memory_bytes, folder, files = marshal.load(file)
    if files:
        try:
            walls.lay_out(folder, files, config["namespaces"])
        except OSError as error:
            os.write(channel_fd, packets.NO_FILES + str(error.strerror).encode())
            return
        sys.path.insert(0, folder)
        if ruleset is not None:
            os.close(ruleset)
            ruleset = walls.landlock_ruleset([*config["readable"], folder], config["devices"])
    uid = config["run_as"]
    if uid is not None:  # leave uid 0 for good: the worker asks for it whenever it is root
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.die_with_parent(parent)
    control.close()
    kernel.drop_privileges()
    if ruleset is not None:
        kernel.call("landlock_restrict_self", ruleset, 0)
        os.close(ruleset)
    for limit, value in (  # tests have the same
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, config["output_bytes"]),
        (resource.RLIMIT_NOFILE, config["max_open_files"]),
        (resource.RLIMIT_NPROC, config["max_tasks"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(limit, (value, value))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    stack = _MAIN_STACK if hard == resource.RLIM_INFINITY else min(_MAIN_STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
    for_program, for_tests = filters
    for_program.install()
    program.Program(_socket.socket(fileno=channel_fd), for_tests).serve(*task)


def _serve(control, config):
    """Get ready, then fork a process for each program and wait for it."""
    ruleset = None
    if walls.landlock_abi() > 0:
        ruleset = walls.landlock_ruleset(config["readable"], config["devices"])
    filters = (seccomp.Filter(seccomp.program_filter()), seccomp.Filter(seccomp.test_filter()))
    # have the interpreter build now what every test would otherwise build for itself
    warm_up = compile("import sys\nfor line in sys.stdin: pass\nprint(*map(int, '1 2'.split()))", "<warm up>", "exec")
    for _ in range(8):
        exec(warm_up, {})
    sys.stdin.read()
    sys.stdout.flush()
    gc.collect()
    kernel.libc.malloc_trim(0)
    gc.freeze()  # a collection in a fork would otherwise write to, and so copy, every page of this process
    control.send(packets.READY)
    parent = _OUTSIDE if config["namespaces"] else os.getpid()
    while True:
        kind, ancillary, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(packets.PROGRAM.size))
        if not kind:
            return
        channel_fd, payload_fd = packets.PROGRAM.unpack(ancillary[0][2])
        # when the first process of a pid namespace ends, the kernel kills whatever is left in it
        new = walls.PER_PROGRAM | (walls.NEWNS if kind == packets.WITH_FILES else 0)
        try:
            pid = kernel.fork_into(new) if config["namespaces"] else os.fork()
        except BlockingIOError:
            _socket.socket(fileno=channel_fd).send(packets.NO_TASKS)
            return
        if pid == 0:
            code = 1
            try:
                _become_program(parent, control, channel_fd, payload_fd, config, ruleset, filters)
                code = 0
            except Exception as error:
                os.write(2, f"cobalt.sandbox: {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(code)
        os.close(channel_fd)
        os.close(payload_fd)
        _, status = os.waitpid(pid, 0)
        control.send(packets.ENDED.pack(status))


def main():
    """Arguments: the descriptor to talk over, and the process to end with."""
    sys.path.pop(0)  # the directory of this file
    del sys.modules["zygote"]
    sys.dont_write_bytecode = True
    kernel.die_with_parent(int(sys.argv[2]))
    control = _socket.socket(fileno=int(sys.argv[1]))
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # out of memory, the kernel ends programs rather than the server or what it serves
        config = marshal.loads(control.recv(_CONFIG_BYTES))
        for name in ("exit", "quit"):  # which the site module would have brought
            setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
        builtins.help = _sitebuiltins._Helper()
        sys.path.extend(config["package_dirs"])
        sys.meta_path.insert(-1, ListedModules(config["modules"]))  # before the directories of sys.path, and forget
        sys.path_importer_cache.clear()  # what was listed of those
        sys.orig_argv = sys.argv = [""]  # programs need not know where the server is installed
        _thread.stack_size(_THREAD_STACK)
        _, most_tasks = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (most_tasks, most_tasks))
        if config["namespaces"]:
            kernel.check(kernel.libc.unshare(walls.OUTER), "unshare")
            control.send(packets.UNSHARED)
            control.recv(1)  # the worker has written the user map
            walls.build_root(config["readable"], config["devices"], config["links"])
            pid = os.fork()  # the child is the first process of its pid namespace
            if pid:
                os.waitpid(pid, 0)
                os._exit(0)
            kernel.die_with_parent(_OUTSIDE)
        elif walls.landlock_abi() < walls.SCOPE_ABI:
            raise OSError(f"Landlock version {walls.landlock_abi()}, {walls.SCOPE_ABI} is needed")
    except BlockingIOError:
        control.send(packets.NO_TASKS)
        return
    except OSError as error:
        about = f" {error.filename}" if error.filename else ""
        control.send(f"failed: {error.strerror or error}{about}".encode())
        return
    try:
        _serve(control, config)
    except ConnectionError:  # the worker is gone
        return
