"""Locates a rank's main thread in the stack that faulthandler printed: in a collective, or in a line of user code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from kittrain.torch_private import early

HEADER: Final = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
FRAME: Final = re.compile(r'  File "(.+)", line (\d+) in (.+)')

GROUP: Final = "init_process_group"
BUILD: Final = "FileBaton.wait"  # until the lock file of an extension's build is gone
REPLICA: Final = "the barrier of its replica"  # before an optimizer step; see rank/world/step_barrier.py
FUNCTIONAL: Final = "a functional collective"
DTENSOR: Final = "an exchange of a DTensor's parts"
STATE: Final = "the gathering of a state dict"
BACKWARD: Final = "the gradients' all-reduce"  # or the backward pass before it: the frames are the same

# Frames in which a rank waits for others: file, function (empty: any), name in messages (empty: the function's).
WAITS: Final[tuple[tuple[str, str, str], ...]] = (
    ("torch/distributed/distributed_c10d.py", "", ""),
    ("torch/distributed/rendezvous.py", "", GROUP),
    (*early.RUN_BACKWARD, BACKWARD),
    (*early.WAITS_FOR_BUILD, BUILD),
    (*early.BROADCAST_BUFFERS, "DDP's broadcast of buffers"),
    (*early.BROADCAST_MODEL, "DDP's broadcast of the model"),
    (*early.COMPARE_MODELS, "DDP's comparison of models"),
    (*early.WAITS_FOR_TENSOR, FUNCTIONAL),
    ("kittrain/system/host_barrier.py", "", REPLICA),
    ("kittrain/rank/training/step_sync.py", "_wait", "the sum of the losses"),
    ("kittrain/rank/training/step_sync.py", "read", "the sum of the losses"),
)
# Frames above those, whose name tells more than that of the collective that they make.
MAKES_WAIT: Final[tuple[tuple[str, str], ...]] = (
    (early.FUNCTIONAL, FUNCTIONAL),
    (early.REDISTRIBUTES, DTENSOR),
    (early.HOLDS_DTENSOR, DTENSOR),
    (early.GATHERS_STATE, STATE),
)
LOADER: Final = early.WAITS_FOR_WORKERS
# Frames in which libraries connect to a server, or sleep before they try that again: file, function.
TRIES: Final[tuple[tuple[str, str], ...]] = (
    *(("/socket.py", name) for name in ("create_connection", "getaddrinfo")),
    ("/urllib3/util/connection.py", "create_connection"),
    *(("/urllib3/util/retry.py", name) for name in ("sleep", "sleep_for_retry", "_sleep_backoff")),
    ("/httpcore/_backends/sync.py", "connect_tcp"),
    ("/httpcore/_sync/connection.py", "_connect"),
    *(("/huggingface_hub/utils/_http.py", name) for name in ("http_backoff", "_http_backoff_base")),
    ("/google/api_core/retry/retry_unary.py", "retry_target"),
    ("/tenacity/nap.py", "sleep"),
    ("/backoff/_sync.py", "retry"),
)
A_PROCESS: Final = "a process"
UNREAD: Final = {"output": "a process whose output nobody reads", "queue": "a process whose queue nobody reads"}
LOST_THREADS: Final = ", forked without the thread that it waits for"  # of a process, after its place
# Files of Python's libraries in which a process waits for another one, or not for ever.
SHARED_LOCKS: Final = ("/multiprocessing/", "/concurrent/futures/", "/threading.py")
_ACQUIRES: Final = re.compile(r"\bacquire\(")
# Frames in which a rank waits for what it has begun itself: file, function, what. Of locks and files Python has none.
AWAITS: Final[tuple[tuple[str, str, str], ...]] = (
    *(("/subprocess.py", name, A_PROCESS) for name in ("wait", "communicate", "_communicate")),
    ("/multiprocessing/process.py", "join", A_PROCESS),
    ("/torch/multiprocessing/spawn.py", "join", "its processes"),
    *(("/multiprocessing/pool.py", name, "a pool of processes") for name in ("get", "wait", "next", "join")),
    ("/multiprocessing/queues.py", "get", "a queue"),
    ("/multiprocessing/queues.py", "_finalize_join", "its queue to be read"),
    ("/queue.py", "get", "a queue"),
    ("/queue.py", "put", "room in a queue"),
    *(("/concurrent/futures/_base.py", name, "a future") for name in ("result", "exception", "wait")),
    ("/threading.py", "join", "a thread"),
    ("/threading.py", "wait", "an event"),
)
NATIVE_WAITS: Final = {  # native code that waits: by the line that calls it
    "TCPStore": re.compile(r"\bTCPStore\("),  # until its server is there, and all ranks have come
    "store.get": re.compile(r"(?i:store)\.get\("),  # until a rank sets the key
    "store.wait": re.compile(r"(?i:store)\.wait\("),
}
FORKED: Final = ("/multiprocessing/process.py", "_bootstrap")  # below all that a process of multiprocessing does
ENDS: Final = ("/kittrain/system/after_fork.py", "run_and_exit")  # below all that a forked rank does
RUNS: Final = "/kittrain/agent/processes/worker.py"  # between that and its script
CODE_LIMIT: Final = 60  # characters of a line of code in a message
_LITERAL: Final = re.compile(r"(['\"])(?:(?!\1)[^\\]|\\.){17,}\1")  # long: a path, an address, perhaps a secret
# Around the function that is called: decorators, and what calls an operator of torch.
WRAPPERS: Final = ("torch/distributed/c10d_logger.py", *early.CALLS_OPERATOR)
# Not user code; the bundled workloads count as user code.
LIBRARY: Final = re.compile(
    r"<frozen |/(site-packages|dist-packages|lib/python[\d.]+)/|/kitctl/targets/local/"  # what a rank was forked in
    rf"|{re.escape(str(Path(__file__).parents[2]))}/(?!workloads/)"
)


@dataclass(frozen=True)
class Frame:
    """One stack frame."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line} in {self.function}"


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a main thread is.

    Attributes:
        wait: the collective that it is in; empty if it is in none.
        line: the innermost line of user code, or of any code if there is none.
        code: what is written there, which names what native code waits for; empty: not known.
        loads: whether it waits for the workers of its data loader.
        tries: whether it connects to a server, or waits until it tries that again.
        awaits: what it waits for that it has begun itself, such as ``a process``; empty: for nothing that is known.
        worker: where a fork of it is that it waits for, as a worker of its data loader; empty: unknown, or idle.
        exits: what goes on although the script is over: a ``thread`` that it has started, or an ``exit handler``;
            ``line`` is that one's. Empty: it is not over.
    """

    wait: str = ""
    line: str = ""
    code: str = ""
    loads: bool = False
    tries: bool = False
    awaits: str = ""
    worker: str = ""
    exits: str = ""


def locate(printed: Iterable[str], source: Callable[[str, int], str] | None = None) -> Location | None:
    """The location of the main thread, which faulthandler prints last; None if no stack was printed.

    Args:
        printed: by faulthandler.
        source: gives a line of a file, for native code that waits: no stack has its frames, but the line names it.
    """
    frames: list[Frame] = []
    threads: list[list[Frame]] = []
    for text in printed:
        if HEADER.match(text):
            frames = []
            threads.append(frames)
        elif found := FRAME.match(text):
            frames.append(Frame(found[1], int(found[2]), found[3]))
    if not frames:
        return None
    if frames[0].file.endswith("/threading.py") and frames[0].function == "_shutdown":
        others = (frame for thread in threads[:-1] for frame in thread if not LIBRARY.search(frame.file))
        return Location(line=str(next(others, "")), exits="thread")
    if (handlers := _exit_handlers(frames)) is not None:
        return Location(line=str(next(handlers, "")), exits="exit handler")
    user = next((frame for frame in frames if not LIBRARY.search(frame.file)), frames[0])
    loads = any(frame.file.endswith(file) and frame.function == name for frame in frames for file, name in LOADER)
    tries = any(frames[0].file.endswith(file) and frames[0].function == name for file, name in TRIES)
    written = source(user.file, user.line) if source else ""
    native = next((name for name, call in NATIVE_WAITS.items() if user is frames[0] and call.search(written)), "")
    return Location(
        wait=_wait(frames) or native,
        line=str(user),
        code=_quoted(written),
        loads=loads,
        tries=tries,
        awaits=_awaits(frames),
    )


def _quoted(written: str) -> str:
    """A line of code for a message: short, without its comment, and without long texts, which may be secrets."""
    code = " ".join(_LITERAL.sub(r"\1…\1", written).partition("  #")[0].split()).replace("`", "")
    return code if len(code) <= CODE_LIMIT else f"{code[: CODE_LIMIT - 1]}…"


def _awaits(frames: list[Frame]) -> str:
    """What the library's frames above the user's wait for; of nested waits the outermost."""
    name = ""
    for frame in frames:
        if not LIBRARY.search(frame.file):
            return name
        known = (what for file, function, what in AWAITS if (frame.file.endswith(file) and frame.function == function))
        name = next(known, name)
    return ""  # it runs no script


def line_of_fork(printed: Iterable[str]) -> str:
    """The innermost line of user code in what a forked process runs; empty if it runs none, as one that waits for work.

    Below that are the frames of the process that it was forked from.
    """
    frames = [Frame(found[1], int(found[2]), found[3]) for text in printed if (found := FRAME.match(text))]
    for frame in frames:
        if frame.file.endswith(FORKED[0]) and frame.function == FORKED[1]:
            return ""
        if not LIBRARY.search(frame.file):
            return str(frame)
    return ""


def waits_for_a_thread(printed: Iterable[str], source: Callable[[str, int], str]) -> bool:
    """Whether a process that waits for a lock does so for one of its own threads, as far as its stack tells.

    ``acquire()`` of a lock that processes share has no frame of its own.

    Args:
        printed: by faulthandler.
        source: gives a line of a file.
    """
    found = next(filter(None, map(FRAME.match, printed)), None)
    if found is None or any(part in found[1] for part in SHARED_LOCKS):
        return False
    return not _ACQUIRES.search(source(found[1], int(found[2])))


def _exit_handlers(frames: list[Frame]) -> Iterator[Frame] | None:
    """The user's frames in what runs after the script; None while that runs itself."""
    at = next((at for at, one in enumerate(frames) if (one.file.endswith(ENDS[0]) and one.function == ENDS[1])), None)
    if at is None or any(one.file.endswith(RUNS) for one in frames[:at]):
        return None
    return (one for one in frames[:at] if not LIBRARY.search(one.file))


def _wait(frames: list[Frame]) -> str:
    """The collective that the innermost frames are in; of nested collectives the outermost."""
    name = ""
    for frame in frames:
        if frame.file.endswith(WRAPPERS):
            continue
        known = next((one for one in WAITS if frame.file.endswith(one[0]) and one[1] in {"", frame.function}), None)
        above = next((told for file, told in MAKES_WAIT if name and frame.file.endswith(file)), "")
        if not (known or above):
            break
        name = known[2] or frame.function if known else above
    return name
