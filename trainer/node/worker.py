"""What each rank's process runs: the user's script or module, as ``python`` itself would, with its last error kept.

python -P -m trainer.node.worker train.py --epochs 5
python -P -m trainer.node.worker -m package.module --epochs 5
"""

from __future__ import annotations

import faulthandler
import os
import runpy
import signal
import sys
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final

from trainer.system.lifeline import end_with

OWN_FILES: Final = (__file__, runpy.__file__, "<frozen runpy>")


def main(command: list[str]) -> None:
    """Run the command; an exception ends the process with code 1, a SystemExit with its own."""
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


if __name__ == "__main__":
    end_with(os.getppid())
    main(sys.argv[1:])
