"""Writes what a script can see of its process as JSON, to compare a rank with ``torchrun`` and with ``python``."""

# ruff: noqa: E402, PLC0415  the modules that are loaded before any import are compared

import sys

LOADED = sorted(sys.modules)

import atexit
import ctypes
import gc
import json
import logging
import os
import resource
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

FOLDER = str(Path(__file__).parent)


def plain(value: object) -> str:
    """A text without memory addresses."""
    name = getattr(value, "__qualname__", None)
    if name:
        return f"{getattr(value, '__module__', '')}.{name}"
    return type(value).__qualname__ if " at 0x" in repr(value) else repr(value)


def main_module() -> dict[str, Any]:
    from multiprocessing.spawn import get_preparation_data

    import __main__

    return {
        "names": sorted(name for name in vars(__main__) if name.startswith("__")),
        "values": {
            name: plain(vars(__main__).get(name, "missing"))
            for name in ("__name__", "__file__", "__package__", "__cached__", "__annotations__")
        },
        "spec": getattr(__main__.__spec__, "name", None),
        "loader": plain(type(__main__.__loader__)),
        "is this": vars(__main__) is globals(),
        "for children": sys.modules.get("__mp_main__") is __main__,
        "children's data": [
            (name, plain(value))
            for name, value in sorted(get_preparation_data("a child").items())
            if name not in {"authkey", "sys_path"}
        ],
    }


def processes() -> dict[str, Any]:
    """The state of multiprocessing and of its helpers."""
    import concurrent.futures.process as executors
    import multiprocessing
    from multiprocessing import forkserver, process, resource_tracker, spawn, util

    current = multiprocessing.current_process()
    return {
        "current": [current.name, plain(type(current)), current.daemon, current.pid == os.getpid()],
        "config": sorted(current._config),  # type: ignore[attr-defined]
        "parent": plain(multiprocessing.parent_process()),
        "children": len(multiprocessing.active_children()),
        "inheriting": hasattr(current, "_inheriting"),
        "method": [multiprocessing.get_start_method(allow_none=True), multiprocessing.get_all_start_methods()],
        "folder": str(Path.cwd()) == process.ORIGINAL_DIR,  # type: ignore[attr-defined]
        "executable": os.fsdecode(spawn.get_executable()),
        "tracker": [getattr(resource_tracker._resource_tracker, name) for name in ("_fd", "_pid")],
        "fork server": [getattr(forkserver._forkserver, name) for name in ("_forkserver_pid", "_preload_modules")],
        "finalizers": len(util._finalizer_registry),  # type: ignore[attr-defined]
        "executors": len(executors._threads_wakeups),
    }


def interpreter() -> dict[str, Any]:
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags)}
    thresholds = [gc.isenabled(), gc.get_threshold(), gc.get_debug()]
    numbers = [number for number in signal.valid_signals() if number < signal.SIGRTMIN]
    return {
        "argv": sys.argv,
        "original argv": [word if word in {"-P", "-u", "-m"} else Path(word).name for word in sys.orig_argv],
        "path": [entry.replace(FOLDER, "FOLDER") for entry in sys.path],
        "flags": {name: value for name, value in flags.items() if isinstance(value, int)},
        "streams": {
            name: {
                "codec": [stream.encoding, stream.errors],
                "line buffering": stream.line_buffering,
                "rest": [stream.write_through, stream.name, stream.isatty()],
            }
            for name in ("stdin", "stdout", "stderr")
            for stream in [getattr(sys, name)]
        },
        "hooks": [plain(one) for one in (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)],
        "finders": sorted({plain(one) for one in sys.meta_path}),
        "putenv": plain(os.putenv),
        "exit handlers": atexit._ncallbacks(),
        "threads": [one.name for one in threading.enumerate()],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), *thresholds],
        "frozen objects": gc.get_freeze_count() > 0,
        "filters": sorted(map(repr, warnings.filters)),
        "signals": {signal.Signals(number).name: plain(signal.getsignal(number)) for number in numbers},
        "root logger": [logging.root.level, list(map(plain, logging.root.handlers))],
    }


def kernel() -> dict[str, Any]:
    rows = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)
    return {
        **{name: rows[name] for name in ("SigIgn", "SigBlk", "SigCgt", "Threads", "Umask", "CapEff", "NoNewPrivs")},
        "dies with its parent": number.value,
        "nice": os.nice(0),
        "session leader": os.getsid(0) == os.getpid(),
        "limits": [resource.getrlimit(one) for one in range(16)],
        "descriptors": sorted(kind(path) for path in Path("/proc/self/fd").iterdir() if kind(path)),
        "environment": sorted(os.environ),
        "folder": str(Path.cwd()),
    }


def kind(path: Path) -> str:
    """What a descriptor is open to; empty for that of the listing."""
    try:
        return f"{path.name} {path.readlink().name.partition(':')[0]}"
    except OSError:
        return ""


if __name__ == "__main__":
    FACTS = {"modules": LOADED, "kernel": kernel(), "interpreter": interpreter()}
    FACTS |= {"main": main_module(), "processes": processes()}
    Path(os.environ["OUTPUT"]).write_text(json.dumps(FACTS))
