"""Writes the observable state of a rank's process as JSON, to compare warm with cold ranks. The first start fails."""

# ruff: noqa: PLC0415  the state before and after imports is compared

import atexit
import ctypes
import gc
import importlib
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = {}  # before, and after importing the preloaded modules


def plain(value: Any) -> str:
    """A text without memory addresses."""
    if isinstance(value, (type, type(json.dumps))):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


def stream(file: Any) -> str:
    return f"{file.encoding} {file.errors} {file.line_buffering} {file.write_through} {file.name} {file.mode}"


def status(*names: str) -> dict[str, str]:
    rows = (line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    return {row[0]: row[1] for row in rows if row[0] in names}


def kernel() -> dict[str, Any]:
    """What a process inherits by fork and exec."""
    prctl = ctypes.CDLL(None).prctl
    number = ctypes.c_int()
    facts: dict[str, Any] = status("SigIgn", "SigBlk", "Threads", "Umask", "CapEff", "NoNewPrivs", "Cpus_allowed")
    facts["descriptors"] = sorted(f"{fd.name} {kind(fd)}" for fd in Path("/proc/self/fd").iterdir() if kind(fd))
    for name, option in (("parent death", 2), ("subreaper", 37)):
        prctl(option, ctypes.byref(number), 0, 0, 0)
        facts[name] = number.value
    facts["limits"] = [resource.getrlimit(one) for one in range(16)]
    facts["oom"] = Path("/proc/self/oom_score_adj").read_text()
    given = dict(os.environ)
    os.environ["TMPDIR"] = given["KIT_SNAPSHOT_DIR"]  # before a temporary file is created
    facts["temporary"] = tempfile.gettempdir() == os.environ["TMPDIR"]
    os.environ |= {"TMPDIR": given.get("TMPDIR", "/tmp")}
    tempfile.tempdir = None
    facts["nice"], facts["folder"], facts["leader"] = os.nice(0), str(Path.cwd()), os.getsid(0) == os.getpid()
    return facts


def kind(fd: Path) -> str:
    try:
        path = Path(str(fd.readlink()).partition(":[")[0])
    except OSError:
        return ""  # the descriptor of the listing itself
    return path.suffix or path.name  # the pipe's name has the rank


def interpreter() -> dict[str, Any]:
    """The interpreter's settings, from its command line, environment and code."""
    counts = ("_", "n_", "count", "index")
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if not name.startswith(counts)}
    signals = [signal.Signals(number) for number in range(1, signal.SIGRTMIN) if number in signal.valid_signals()]
    return {
        "flags": flags,
        "exit": atexit._ncallbacks(),
        "hash": hash("a text") if os.environ.get("PYTHONHASHSEED") else None,
        "path": sys.path,
        "argv": sys.argv,
        "options": [sys.warnoptions, sys._xoptions, sys.executable, sys.dont_write_bytecode, sys.pycache_prefix],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()],
        "hooks": [plain(one) for one in (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)],
        "traces": [plain(sys.gettrace()), plain(sys.getprofile()), plain(threading.gettrace())],
        # Once each: kittrain has one for each module that it waits for, and a cold rank has imported more of them.
        "finders": list(dict.fromkeys(plain(one) for one in (*sys.meta_path, *sys.path_hooks))),
        "streams": [stream(sys.stdout), stream(sys.stderr), stream(sys.stdin)],
        "signals": {one.name: plain(signal.getsignal(one)) for one in signals},
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "threads": [one.name for one in threading.enumerate()],
        "main": [sys.modules["__main__"].__name__, threading.main_thread() is threading.current_thread()],
        "native id": threading.main_thread().native_id == os.getpid(),
        "filters": [plain(one) for one in warnings.filters],
        "warnings": plain(warnings.showwarning),
        "temporary": tempfile.gettempdir(),
        "time": [time.tzname, locale.setlocale(locale.LC_ALL), locale.getpreferredencoding()],
        "processes": [multiprocessing.current_process().name, multiprocessing.get_start_method(allow_none=True)],
        "trackers": [multiprocessing.resource_tracker._resource_tracker._fd],  # type: ignore[attr-defined]
        "logging": logs(),
        "environment": {name: text for name, text in os.environ.items() if not own(name)},
    }


def own(name: str) -> bool:
    """Whether a variable differs between starts or ranks."""
    return name.endswith(("RANK", "WORLD_SIZE", "_FILE", "_PORT", "_ENDPOINT", "_COUNT", "NPROC_PER_NODE")) or name in {
        *("KIT_REPORT", "KIT_TERMINATION_LOG", "KIT_SNAPSHOT_DIR", "KIT_WARM_WORKERS", "FACTS_ONCE"),
        "TORCHINDUCTOR_CACHE_DIR",  # set by torch on first use
    }


def logs() -> dict[str, Any]:
    found = {"root": logging.root, **logging.root.manager.loggerDict}
    return {
        name: [one.level, one.propagate, one.disabled, [plain(each) for each in (*one.handlers, *one.filters)]]
        for name, one in sorted(found.items())
        if isinstance(one, logging.Logger) and (one.level or one.handlers or one.filters or not one.propagate)
    } | {"disabled": logging.root.manager.disable, "class": plain(logging.getLoggerClass())}


def torch_settings() -> dict[str, Any]:
    """Torch's settings, from the environment and code."""
    import torch
    import torch._dynamo.config
    import torch._inductor.config
    import torch.distributed as dist

    configs = {}
    for module in (torch._dynamo.config, torch._inductor.config):
        configs[module.__name__] = {key: plain(text) for key, text in module.get_config_copy().items()}
    core = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so"))
    return {
        "log level": ctypes.c_int.in_dll(core, "FLAGS_caffe2_log_level").value,
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "type": [plain(torch.get_default_dtype()), plain(torch.get_default_device())],
        "grad": [torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.is_inference_mode_enabled()],
        "bits": [torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()],
        "backends": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.mkldnn.enabled],
        "sharing": torch.multiprocessing.get_sharing_strategy(),
        "debug": plain(dist.get_debug_level()),
        "cuda": [torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork(), len(torch.cuda._queued_calls)],
        "configs": configs,
        "print": plain(torch._tensor_str.PRINT_OPTS),
        "dynamo": len(torch._dynamo.convert_frame.input_codes.seen),
    }


def random_draws() -> dict[str, Any]:
    """Draws from all random generators."""
    import numpy as np
    import torch

    drawn: dict[str, Any] = {
        "torch": torch.rand(1, dtype=torch.float64).item(),
        "torch's seed": torch.initial_seed(),
        "random": random.random(),
        "numpy": float(np.random.rand()),  # noqa: NPY002
        "numpy's new": float(np.random.default_rng().random()),
        "temporary name": next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]
        "permutation": torch.randperm(10_000).sum().item() and torch.empty(4).normal_().tolist(),
    }
    gc.unfreeze()  # otherwise objects from before the fork are not listed
    found = gc.get_objects()
    drawn["generators"] = [hash(one.getstate()) for one in found if issubclass(type(one), random.Random) and state(one)]
    return drawn


def state(generator: random.Random) -> bool:
    """Whether it has a state; SystemRandom has none."""
    return not isinstance(generator, random.SystemRandom)


def main(names: list[str]) -> None:
    FACTS["kernel"] = kernel()
    for name in names:
        importlib.import_module(name)
    FACTS["interpreter"], FACTS["torch"] = interpreter(), torch_settings()
    FACTS["random"] = random_draws()
    folder, rank, start = (os.environ[name] for name in ("KIT_SNAPSHOT_DIR", "RANK", "TORCHELASTIC_RESTART_COUNT"))
    Path(folder, f"facts-{rank}-{start}.json").write_text(json.dumps(FACTS))
    while len(list(Path(folder).glob(f"facts-*-{start}.json"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.05)  # the first failure ends the others
    if start == "0" and "FACTS_ONCE" not in os.environ:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
