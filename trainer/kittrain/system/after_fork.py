"""Makes a forked process behave as if it had been started by ``exec``."""

from __future__ import annotations

import atexit
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_generators: list[random.Random] = []  # created by modules at import


def record_generators() -> None:
    """Remember all existing ``random.Random`` objects, so that processes forked later can reseed them.

    They are found as what refers to their class. A list of all objects would change each one's reference count, and so
    copy the memory that a forked process shares with its parent: with torch imported, 100 MB and 0.1 s.
    """
    gc.unfreeze()  # frozen objects are not listed
    classes = [*_with_subclasses(random.Random)]
    _generators[:] = [one for one in gc.get_referrers(*classes) if issubclass(type(one), random.Random)]


def drop_finalizers(package: str) -> None:
    """Have this process, and those that are forked later, end without finalizing what a package has made so far.

    Torch would take back the operators of two hundred libraries, for 20 ms: they go with the process.
    """
    registered = getattr(weakref.finalize, "_registry", {})  # undocumented: without it, an end only takes longer
    for one, made in list(registered.items()):
        if str(getattr(made.func, "__module__", None)).partition(".")[0] == package:
            one.atexit = False


def _with_subclasses(base: type) -> Iterator[type]:
    subclasses: list[type] = base.__subclasses__()
    yield base
    for one in subclasses:
        yield from _with_subclasses(one)


def reset_after_fork(env: Mapping[str, str]) -> None:
    """Set what ``exec`` would set: the environment, default signal handlers and fresh random seeds."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _reset_multiprocessing()
    tempfile.tempdir = None  # cached; the environment or the script may set another one
    with suppress(AttributeError):
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001  not updated by Python 3.11
    reseed_generators()


def _reset_multiprocessing() -> None:
    """Set what ``multiprocessing`` takes from the process when it is imported: its folder, and a secret of its own."""
    if process := sys.modules.get("multiprocessing.process"):
        process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]
        process.current_process().authkey = os.urandom(32)


def reseed_generators() -> None:
    """Seed all random generators of this process randomly. Devices' generators are created later, in each process."""
    for generator in _generators:
        generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def run_and_exit(main: Callable[[], object]) -> NoReturn:
    """Run ``main`` and exit as the interpreter would, without unwinding the frames inherited from the parent."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = exit_code(end)
    except BaseException:  # noqa: BLE001  printed, as Python does
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  waits for threads, as the interpreter does
        atexit._run_exitfuncs()  # noqa: SLF001  likewise
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader is gone, or the script closed it
                stream.flush()
        os._exit(code)


def exit_code(end: SystemExit) -> int:
    """The exit code that Python would use; a message is printed to stderr."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)  # noqa: T201  as Python does
    return 1
