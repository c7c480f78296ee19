"""What a forked process needs in order to live as if it had been started anew."""

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

_generators: list[random.Random] = []  # that modules made when they were imported


def note_generators() -> None:
    """Remember all of Python's generators that there are, for processes that are forked later to seed them anew."""
    _generators[:] = [one for one in gc.get_objects() if issubclass(type(one), random.Random)]


def take_over(env: Mapping[str, str]) -> None:
    """Take over what ``exec`` would have given: environment, signals, and chance of its own."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tempfile.tempdir = None  # the environment may say another one, and so may a script
    with suppress(AttributeError):
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001  Python 3.11 forgets it
    draw_anew()


def draw_anew() -> None:
    """Seed all generators of this process by chance. Those of devices are made later, and so in each process."""
    for generator in _generators:
        generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def live(main: Callable[[], object]) -> NoReturn:
    """Run ``main`` and end as Python would, but never return into the frames of who was forked, and their clean-up."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = exit_code(end)
    except BaseException:  # noqa: BLE001  as Python does: told, and the end
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  waits for threads, as the interpreter does
        atexit._run_exitfuncs()  # noqa: SLF001  likewise
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # its reader is gone, or the script has closed it
                stream.flush()
        os._exit(code)


def exit_code(end: SystemExit) -> int:
    """What Python ends with; a message goes to stderr."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)  # noqa: T201  as Python does
    return 1
