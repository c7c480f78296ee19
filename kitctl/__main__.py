"""The process of one command: ``kitctl``, and ``python -m kitctl``.

Ctrl-C and an output that cannot be written end it with an exit code and at most one line, whatever it is doing.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

_INTERRUPTED = 130  # as in kitctl.cli.main, which is not imported yet
_PIPE_CLOSED = 141


def main() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        return _run()
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run() -> int:
    # Imports leave no garbage, and a process that ends need not look for any: a sixth of a short command's time.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    import signal  # noqa: PLC0415 - once the collector is set, and within the try

    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else, as under nohup, it stays ignored
    if waits:  # an interrupt during imports may end in any callback, which would print it and go on
        signal.signal(signal.SIGINT, _leave)
    from kitctl.cli.main import main as run  # noqa: PLC0415 - once the collector is set

    if waits:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = _written(run())
    if waits:
        signal.signal(signal.SIGINT, _leave)
    return code


def _leave(*_: object) -> None:
    os._exit(_INTERRUPTED)


def _written(code: int) -> int:
    """The exit code, once all output is written; if it cannot be, that of the failure."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        code = _PIPE_CLOSED
    except OSError as error:
        code = code or 1
        _say(f"error: the output cannot be written: {error.strerror or error}\n")
    else:
        return code
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would write it again, and report that
    return code


def _say(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass


def _leave_folder() -> None:
    """``python -m`` puts the working folder first: a ``random.py`` in it, for a script, must not be kitctl's."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - nothing is imported
    if not sys.flags.safe_path and sys.path and os.path.abspath(sys.path[0]) == os.getcwd() != package:  # noqa: PTH100, PTH109
        del sys.path[0]


if __name__ == "__main__":
    _leave_folder()
    sys.exit(main())
