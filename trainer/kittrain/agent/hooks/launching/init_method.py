"""Replaces the address that a script gives for its process group by the agent's.

A script that was written for one start names a file (``file://``) or a port (``tcp://``, or its own ``MASTER_PORT``). A
file that a killed round has left makes the next one wait for ever, and a port may be taken, or be another machine's.
The agent gives each round a new store (``env://``): if the script's group is all ranks of the job, it meets there.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import OTHER_GROUP

FIXED: Final = ("file", "tcp")  # schemes of addresses that are the same in each round
MASTER: Final = ("MASTER_ADDR", "MASTER_PORT")
NO_MPI: Final = (
    "the backend mpi cannot be used: kitctl starts the ranks, not mpirun, so that MPI would see one process each; "
    'give init_process_group("gloo") on CPUs, or "nccl" on GPUs'
)


def own_address(environ: Mapping[str, str]) -> dict[str, str]:
    """The job's own address; to be read ahead of the script, which may change it before it imports torch. Pure."""
    return {name: environ[name] for name in MASTER if name in environ}


def redirect(module: ModuleType, started: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
    """Wrap ``init_process_group`` of ``torch.distributed.distributed_c10d``, and where it is imported already.

    Args:
        module: this module of torch.
        started: the job's own address.
        environ: of the rank.
    """
    initialize: Callable[..., Any] = module.init_process_group
    signature = inspect.signature(initialize)
    rank = os.getpid()

    @in_place_of(initialize)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != rank:  # a process that it has forked
            return initialize(*args, **kwargs)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # torch's own error is better
            return initialize(*args, **kwargs)
        given, remark = adapted(given, environ)
        if changed := set_by_script(given, environ, started):
            os.environ.update(started)
            remark = f"init_process_group meets at this job's own address, and not at the script's {changed}"
        if remark and (environ.get("RANK") == "0" or f"{OTHER_GROUP}rank " in remark):
            sys.stderr.write(f"note: {remark}\n")
        return initialize(**given)

    module.init_process_group = init_process_group  # type: ignore[attr-defined]
    package = sys.modules.get("torch.distributed")
    if getattr(package, "init_process_group", None) is initialize:
        package.init_process_group = init_process_group  # type: ignore[union-attr]


def adapted(given: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The arguments for torch, and a message about the changes; empty if there are none. Pure.

    Raises:
        RuntimeError: the backend is mpi.
    """
    if "mpi" in str(given.get("backend")).lower().replace(":", ",").split(","):
        raise RuntimeError(NO_MPI)
    method = given.get("init_method")
    address = urlsplit(method) if isinstance(method, str) else None
    if given.get("store") is not None or "RANK" not in environ:
        return {**given}, ""
    if address is None or address.scheme not in FIXED:
        what = other_group(given, environ)
        return {**given}, f"{OTHER_GROUP}{what}" if what else ""
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    if what := other_group({**given, **query}, environ):
        return {**given}, f"init_process_group uses {method} as it is, since {what}: after a restart it may hang"
    kept = {name: value for name, value in given.items() if name not in {"init_method", "rank", "world_size"}}
    return kept, f"init_process_group meets at this job's own address instead of {method}, which may be taken or stale"


def set_by_script(given: Mapping[str, Any], environ: Mapping[str, str], started: Mapping[str, str]) -> str:
    """The address in the environment, if the script has changed it and its group would meet there. Pure."""
    if given.get("init_method") not in {None, "env://"} or given.get("store") is not None:
        return ""
    changed = [f"{name}={environ.get(name)}" for name, value in started.items() if environ.get(name) != value]
    return " ".join(changed) if "RANK" in environ and not other_group(given, environ) else ""


def other_group(given: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Why a group is not that of all ranks of the job; empty if it is. Pure."""
    for name, own in (("rank", environ["RANK"]), ("world_size", environ.get("WORLD_SIZE", "1"))):
        if (value := str(given.get(name, -1))) not in {own, "-1", "None"}:
            return f"{name} {value} is not this process's {name.upper()}, which is {own}"
    return ""
