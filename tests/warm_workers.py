"""Forks the workers of ``pytest -n`` from one process that has imported all tests, and with them torch.

Each would take some ten seconds of a core for that. In place of a worker's interpreter, xdist starts this file, which
hands its open files, folder and environment to that process and waits for the worker that is forked there. Where no
process takes them, because its imports failed or one has started a thread, it becomes the interpreter that xdist
wanted. Workers start the fork server of multiprocessing in the same way (``warm_python``).

    python -P tests/warm_workers.py LISTENER PARENT ARGUMENTS...   # of pytest; LISTENER is a file descriptor
    python -S -E tests/warm_workers.py NAME ... -c PROGRAM         # in place of an interpreter; NAME of the socket
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress

TYPE_CHECKING = False  # without typing: each worker waits for what this file imports
if TYPE_CHECKING:
    import execnet
    import pytest

MESSAGE = 1 << 20  # bytes: far more than an environment
FILES = 253  # that a message may bring, by unix(7)
# For warm_python: the name of the socket, and the interpreter. Only forked workers have them.
NAME, PYTHON = "WARM_WORKERS", "WARM_PYTHON"
SPAWNED = "--multiprocessing-fork"
INTERPRETER = f"{os.path.dirname(__file__)}/warm_python"  # noqa: PTH120


def fork_workers(config: pytest.Config, specs: list[execnet.XSpec]) -> None:
    """Have the workers of this session forked; does not wait for the process from which they are."""
    import shlex  # noqa: PLC0415 - only the session's first process needs these
    import subprocess  # noqa: PLC0415

    if not sys.platform.startswith("linux"):
        return
    name = f"kitctl-tests-{os.getpid()}-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(len(specs))
        collect = ("--collect-only", "-qq", "-n0", "--junitxml=", "-p", "no:cacheprovider")
        arguments = [*map(str, config.invocation_params.args), *collect]
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno()), str(os.getpid()), *arguments],
            cwd=config.invocation_params.dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join([sys.executable, "-S", "-E", __file__, name])


def be_a_worker(name: str, interpreter: list[str]) -> None:
    """Wait for a worker that is forked with this process's pipes, or become one."""
    pid = 0
    if SPAWNED in interpreter:  # its program is not the last argument, and it is to be a fresh interpreter
        os.execv(sys.executable, [sys.executable, *interpreter])
    files = [int(file) for file in os.listdir("/proc/self/fd")]  # noqa: PTH208 - imports as little as it can
    files = [file for file in files if _is_open(file)]  # without that of the list itself
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as warm:
        warm.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
        warm.connect(f"\0{name}")
        environ = [b"%b=%b" % one for one in os.environb.items()]
        request = [os.getcwdb(), interpreter[-1].encode(), " ".join(map(str, files)).encode(), *environ]  # noqa: PTH109
        socket.send_fds(warm, [b"\0".join(request)], files)
        pid = int(warm.recv(64) or b"0")
    if not pid:
        os.execv(sys.executable, [sys.executable, *interpreter])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker decides
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def serve(listener: socket.socket, parent: int, arguments: list[str]) -> None:
    """Import the tests, then fork a worker for each request, until the test session has ended."""
    import gc  # noqa: PLC0415 - only this process needs these
    from functools import partial  # noqa: PLC0415
    from importlib import import_module  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import pytest  # noqa: PLC0415

    from kittrain.system.after_fork import record_generators, run_and_exit  # noqa: PLC0415
    from kittrain.system.parent_death import die_with_parent  # noqa: PLC0415
    from kittrain.torch_private.early import IMPORTED_AT_FIRST_STEP  # noqa: PLC0415

    die_with_parent(parent)
    if pytest.main(arguments):
        return
    if "torch" in sys.modules:
        import_module(IMPORTED_AT_FIRST_STEP)
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        return  # threads do not survive a fork
    record_generators()
    gc.freeze()
    del sys.modules["__main__"].__file__  # children of multiprocessing would import it
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps what was forked
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            message, files, _, _ = socket.recv_fds(connection, MESSAGE, FILES)
            pid = os.fork()
            if not pid:
                run_and_exit(partial(run_worker, message, files, [listener, connection]))
            connection.sendall(b"%d" % pid)
            for file in files:
                os.close(file)


def run_worker(message: bytes, files: list[int], ours: list[socket.socket]) -> None:
    """Be the interpreter that was wanted."""
    import fcntl  # noqa: PLC0415 - only this process needs these
    import multiprocessing  # noqa: PLC0415

    from kittrain.system.after_fork import reset_after_fork  # noqa: PLC0415

    name = ours[0].getsockname().decode().removeprefix("\0")
    folder, program, numbers, *environ = message.split(b"\0")
    for one in ours:
        one.close()
    os.chdir(folder)
    places = [int(number) for number in numbers.split()]
    above = max(*places, *files) + 1
    held = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files]
    for file in files:
        os.close(file)
    for file, place in zip(held, places, strict=True):
        os.dup2(file, place)
        os.close(file)
    reset_after_fork(dict(os.fsdecode(one).split("=", 1) for one in environ) | {NAME: name, PYTHON: sys.executable})
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(torch.Generator().initial_seed())  # a new interpreter's is not random
    multiprocessing.set_executable(INTERPRETER)
    sys.argv[:] = ["-c"]
    exec(program, {"__name__": "__main__"})


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3:])
    else:
        be_a_worker(sys.argv[1], sys.argv[2:])
