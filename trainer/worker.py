"""What each rank's process runs: the user's script or module, as ``python`` itself would, with its last error kept.

python -P -m trainer.worker train.py --epochs 5
python -P -m trainer.worker -m package.module --epochs 5
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import runpy
import signal
import sys
import threading
import time
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
OWN_FILES: Final = (__file__, runpy.__file__, "<frozen runpy>")


def main(command: list[str]) -> None:
    """Run the command; an exception ends the process with code 1, a SystemExit with its own."""
    die_with_agent()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a line reaches the agent when it is complete, and as one piece
    try:
        run(command)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  Ctrl-C and the like end a script with a traceback, too
        error.__traceback__ = without_own_frames(error.__traceback__)
        record(error)
        hook = sys.excepthook
        if hook.__module__.startswith("torch."):  # puts the rank in front of each line, as the agent does
            hook = sys.__excepthook__
        hook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None


def run(command: list[str]) -> None:
    """Run ``script.py args`` or ``-m module args`` as ``__main__``."""
    if command[0] == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def record(error: BaseException) -> None:
    """Leave the error where torchrun's agent looks for it (TORCHELASTIC_ERROR_FILE), in torchrun's format."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler  # noqa: PLC0415  1.7 s

    if isinstance(error, Exception):
        get_error_handler().record_exception(error)


def without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in OWN_FILES:
        traceback = traceback.tb_next
    return traceback


def die_with_agent() -> None:
    """End with the agent: torch gives each rank a session of its own, so a killed agent would leave orphans."""
    agent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != agent:  # it was gone before the kernel took note
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(agent,), daemon=True).start()


def _watch(agent: int) -> None:
    while os.getppid() == agent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
