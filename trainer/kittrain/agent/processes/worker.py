"""Runs the user's script or module in a rank's process, as ``python`` would, and records its error.

python -P -m kittrain.agent.processes.worker train.py --epochs 5
python -P -m kittrain.agent.processes.worker -m package.module --epochs 5
"""

from __future__ import annotations

import builtins
import faulthandler
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Final

from kitjob.report import VALUES
from kittrain.agent.hooks import profiling, script_hooks
from kittrain.agent.processes import early_exit, failing_line, stack_file
from kittrain.agent.processes.own_modules import tell_own
from kittrain.agent.processes.shadowed import tell_shadowed
from kittrain.agent.processes.unused_parameters import unused
from kittrain.outcome.failures import Failure
from kittrain.system.child_processes import RANK, show_as
from kittrain.system.parent_death import die_with_parent
from kittrain.system.texts import of_error

TORCH: Final = f"{os.sep}torch{os.sep}"  # in the path of torch's files
LOCAL_RANK: Final = "${local_rank}"  # torchrun's macro
SOURCE: Final = (".py", ".pyw")
SPAWNED_MAIN: Final = "__mp_main__"  # the main module's name in what spawned processes pickle
PACKAGE: Final = Path(__file__).parents[2]  # kittrain
HOOKS: Final = str(Path(script_hooks.__file__).parent) + os.sep
OWN_FILES: Final = (__file__, script_hooks.__file__, runpy.__file__, "<frozen runpy>")


def main(command: list[str]) -> None:
    """Run the command; an exception exits with code 1, a SystemExit with its own."""
    faulthandler.enable()  # print Python's stack on a fatal signal
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    stack_file.register()
    profiling.offer()
    show_as(f"{RANK}{os.environ.get('RANK', '0')}")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the agent gets each line at once, and whole
    script_hooks.install()
    try:
        run(command)
    except SystemExit as end:
        if isinstance(end.code, str):  # a message, which Python prints to stderr
            record(end)
        elif not end.code:
            early_exit.note(end)
        raise
    except BaseException as error:  # noqa: BLE001  also KeyboardInterrupt
        record(error)
        print_error(error)
        raise SystemExit(1) from None


def run(command: list[str]) -> None:
    """Run ``script.py args`` or ``-m module args`` as ``__main__``; ``${local_rank}`` in arguments is this rank's."""
    command = [part.replace(LOCAL_RANK, os.environ.get("LOCAL_RANK", "0")) for part in command]
    sys.orig_argv = [sys.executable, *command]
    if command[0] == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = command[1:]
        run_module(command[1])
    else:
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        sys.argv = command
        run_script(command[0])


def run_script(script: str) -> None:
    """Run a file as the module ``__main__``.

    ``runpy.run_path`` gives it a relative ``__file__``, which is of no use to a script that changes its folder, as
    hydra does.
    """
    if not script.endswith(SOURCE):  # an archive, or bytecode
        runpy.run_path(script, run_name="__main__")
        return
    file = os.path.abspath(script)  # noqa: PTH100  links are not resolved
    loader = SourceFileLoader("__main__", file)
    code = loader.source_to_code(Path(file).read_bytes(), file)
    run_as_main(code, __file__=file, __loader__=loader, __package__=None, __cached__=None)


def run_module(name: str) -> None:
    """Run a module as the module ``__main__``; of a package, its module of that name.

    Raises:
        ImportError: there is none, or it has no Python code.
    """
    spec = main_spec(name)
    code: CodeType | None = spec.loader.get_code(spec.name) if isinstance(spec.loader, InspectLoader) else None
    if code is None:
        raise ImportError(f"{spec.name} has no Python code", name=spec.name)
    sys.argv[0] = spec.origin or spec.name
    names = {"__file__": spec.origin, "__loader__": spec.loader, "__package__": spec.parent, "__cached__": spec.cached}
    run_as_main(code, __spec__=spec, **names)


def main_spec(name: str) -> ModuleSpec:
    """The module that ``python -m name`` runs.

    Raises:
        ImportError: there is none.
    """
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{name}.__main__")
        if spec is None:
            raise ImportError(f"No module named {name}.__main__: {name} is a package, which has none to run", name=name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return spec


def run_as_main(code: CodeType, **names: object) -> None:
    """Run code as the module ``__main__``, and keep the module, which ``runpy`` takes away.

    Threads and exit handlers may need it. What a spawned process sends back of the script's own classes is found under
    the second name, which ``multiprocessing`` gives to the main module that it finds when it is imported.
    """
    module = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={}, **names)
    sys.modules["__main__"] = module
    if SPAWNED_MAIN in sys.modules:
        sys.modules[SPAWNED_MAIN] = module
    exec(code, vars(module))  # noqa: S102  the user's script


def record(error: BaseException) -> None:
    """Write the error to TORCHELASTIC_ERROR_FILE, in torchrun's format."""
    error.__traceback__ = without_own_frames(error.__traceback__)
    tell_shadowed(error)
    tell_own(error)
    if told := ", ".join(filter(None, (unused(error), failing_line.values(error)))):
        error.add_note(f"{VALUES}{told}")  # below its traceback
    try:
        _recorder()(error)
    except Exception as failed:  # noqa: BLE001  an error without a text, a full disk: must not hide the script's error
        sys.stderr.write(f"warning: cannot record the error: {of_error(failed)}\n")


def _recorder() -> Callable[[BaseException], None]:
    """What writes an error to its file: torch, unless the script's error is that torch cannot be imported."""
    try:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler  # noqa: PLC0415  1.7 s
    except Exception:  # noqa: BLE001  its import may fail with anything, as a file next to the script hides what it needs
        return _record_without_torch
    return get_error_handler().record_exception


def _record_without_torch(error: BaseException) -> None:
    """Write what torch would, to where the agent reads it."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        info = {"py_callstack": "".join(traceback.format_exception(error)), "timestamp": str(int(time.time()))}
        message = {"message": f"{type(error).__name__}: {error}", "extraInfo": info}
        Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")


def print_error(error: BaseException) -> None:
    """Print the error as Python does; lost peers in one line, since every surviving rank reports them."""
    if line := lost_peers(error):
        sys.stderr.write(f"{line}\n")
        return
    hook = sys.excepthook
    if hook.__module__.startswith("torch."):  # it prefixes the rank, and so does the agent
        hook = sys.__excepthook__
    hook(type(error), error, error.__traceback__)


def lost_peers(error: BaseException, environ: Mapping[str, str] = os.environ) -> str:
    """A one-line message for an error that torch raised because peers are gone; empty for any other error.

    Torch raises RuntimeErrors; a script's own connections raise others. Also empty with TORCH_DISTRIBUTED_DEBUG=DETAIL
    or INFO, where the user wants the traceback.
    """
    failure = Failure(rank=0, exit_code=1, error=of_error(error), time=0)
    verbose = environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF") != "OFF"
    if verbose or failure.kind != "peer" or not isinstance(error, RuntimeError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in reversed(frames) if TORCH not in frame.filename and frame.filename not in OWN_FILES]
    users = (frame for frame in ours if not _is_library(frame.filename))
    place = next(users, ours[0] if ours else None)
    where = f" at {Path(place.filename).name}:{place.lineno} in {place.name}" if place else ""
    return f"lost its peers{where}: {failure.brief}"


def _is_library(file: str) -> bool:
    """Whether a file is one of this package's, and none of its workloads."""
    path = Path(file)
    return path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "workloads")


def without_own_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback, starting at the user's first frame, without the hooks that the user's calls passed through."""
    while frames is not None and frames.tb_frame.f_code.co_filename in OWN_FILES:
        frames = frames.tb_next
    rest = [*_chain(frames)]
    shown = [one for one in rest if not one.tb_frame.f_code.co_filename.startswith(HOOKS) or one is rest[-1]]
    last = None
    for one in reversed(shown):
        last = TracebackType(last, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return last


def _chain(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next


if __name__ == "__main__":
    die_with_parent(os.getppid())
    main(sys.argv[1:])
