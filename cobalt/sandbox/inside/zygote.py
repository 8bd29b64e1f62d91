"""The process that every test of one worker descends from. Started by path: ``python -S zygote.py DESCRIPTOR``.

It takes a configuration, moves behind the outer wall (mode ``namespaces``), and then forks one process per program. It
stays lean: a fork costs what it has mapped.
"""

import _signal  # pyright: ignore[reportMissingImports] - the signal module would bring enum
import _socket
import _thread
import array
import builtins
import gc
import marshal
import os
import resource
import sys

import kernel
import landlock
import namespaces
import packets
import program
import seccomp

sys.path.pop(0)  # the directory of this file
for _module in ("kernel", "landlock", "namespaces", "packets", "plain", "program", "seccomp", "tracebacks"):
    del sys.modules[_module]  # names that a program may use for itself

_CONFIG_BYTES = 1 << 16
_THREAD_STACK = 8 << 20
_CPU_BACKSTOP_S = 20  # of a test, should its program's process fail to kill it
_MAIN_STACK = 120 << 20  # deep recursion is common; the kernel leaves 128 MiB for the stack


class Quitter:
    """``exit`` and ``quit``, which the site module would have brought."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"Use {self.name}() or Ctrl-D (i.e. EOF) to exit"

    def __call__(self, code=None):
        raise SystemExit(code)


def _prepare_interpreter(config):
    for name in ("exit", "quit"):
        setattr(builtins, name, Quitter(name))
    sys.path.extend(config["package_dirs"])
    _thread.stack_size(_THREAD_STACK)


def _warm_up():
    """Have the interpreter build now what every test would otherwise build for itself."""
    code = compile("import sys\nfor line in sys.stdin: pass\nprint(*map(int, '1 2'.split()))", "<warm up>", "exec")
    for _ in range(8):
        exec(code, {})
    sys.stdin.read()
    sys.stdout.flush()


def _set_limits(config):
    """Limits that a program's process and its tests share."""
    for name, value in (
        (resource.RLIMIT_AS, config["memory_bytes"]),
        (resource.RLIMIT_FSIZE, config["output_bytes"]),
        (resource.RLIMIT_NOFILE, config["max_open_files"]),
        (resource.RLIMIT_NPROC, config["max_tasks"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(name, (value, value))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_CPU, (int(config["cpu_limit_s"]) + _CPU_BACKSTOP_S, resource.RLIM_INFINITY))
    stack = _MAIN_STACK if hard == resource.RLIM_INFINITY else min(_MAIN_STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))


def _become_user(uid):
    """Leave uid 0 for good. The worker asks for it whenever it is root."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def _run_program(control, channel_fd, payload_fd, config, ruleset, filters):
    """In the program's process: drop everything that it does not need, then serve tests."""
    _become_user(config["run_as"])
    kernel.die_with_parent()
    control.close()
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    kernel.undumpable()
    source, fn_name = program.receive_program(payload_fd)
    if ruleset is not None:
        landlock.restrict(ruleset)
        os.close(ruleset)
    _set_limits(config)
    for_program, for_tests = filters
    for_program.install()
    channel = _socket.socket(fileno=channel_fd)
    program.Program(channel, for_tests).serve(source, fn_name)


def _fork_program(arguments, new_namespaces):
    """Fork the program's process and wait for it: the signal that ended it, or 0.

    With new namespaces it takes two forks. A process cannot move itself into a new pid namespace: ``unshare`` only
    decides where its next children are born. So the first child unshares and forks the program's process, which is the
    first of the new namespace; when that one ends, the kernel kills whatever is left in it. The first child waits
    outside, and passes the signal on as its own exit code.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            kernel.die_with_parent()
            if new_namespaces:
                kernel.unshare(namespaces.PER_PROGRAM)
                code = _fork_program(arguments, False)
            else:
                _run_program(*arguments)
                code = 0
        except Exception as error:
            os.write(2, f"cobalt.sandbox: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    for descriptor in arguments[1:3]:
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    if new_namespaces:  # the child's exit code, unless it was killed itself
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else os.WTERMSIG(status)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _serve(control, config):
    ruleset = None
    if landlock.abi() > 0:
        ruleset = landlock.ruleset(config["readable"], config["listable"], config["devices"])
    filters = (seccomp.Filter(seccomp.program_filter()), seccomp.Filter(seccomp.test_filter()))
    _warm_up()
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise write to, and so copy, every page of this process
    control.send(packets.READY)
    while True:
        packet, ancillary, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(2 * 4))
        if not packet:
            return
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2])
        arguments = (control, *descriptors, config, ruleset, filters)
        control.send(packets.ENDED.pack(_fork_program(arguments, config["namespaces"])))


def _enter_namespaces(control, config):
    """Move behind the outer wall. What returns is a child, the first process of its pid namespace; its parent waits."""
    namespaces.enter()
    control.send(packets.UNSHARED)
    control.recv(1)
    namespaces.build_root(config["readable"], config["devices"], config["links"])
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        os._exit(0)
    kernel.die_with_parent()


def main():
    kernel.die_with_parent()
    control = _socket.socket(fileno=int(sys.argv[1]))
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        config = marshal.loads(control.recv(_CONFIG_BYTES))
        _prepare_interpreter(config)
        if config["namespaces"]:
            _enter_namespaces(control, config)
        elif landlock.abi() < landlock.SCOPE_ABI:
            raise OSError(f"Landlock version {landlock.abi()}, {landlock.SCOPE_ABI} is needed")
    except OSError as error:
        about = f" {error.filename}" if error.filename else ""
        control.send(f"failed: {error.strerror or error}{about}".encode())
        return
    try:
        _serve(control, config)
    except ConnectionError:  # the worker is gone
        return


main()
