"""Whether this machine could run a job: what ``submit`` insists on, and what ``kitctl doctor`` looks at besides."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from kitctl.doctor import Doubt, Finding, look
from kitctl.errors import TargetError, UnsupportedError, UsageError
from kitctl.quantity import amount, format_bytes
from kitctl.spec import JobSpec
from kitctl.targets import Submission

LITTLE: Final = 1 << 30  # bytes left on a disk that snapshots soon fill
# The fields of a job that mean nothing to processes of this machine.
IGNORED: Final = (
    "imagePullSecrets",
    "kind",
    "image",
    "gpuResource",
    "envFrom",
    "secrets",
    "volumes",
    "resources",
    "sharedMemory",
    "rendezvous.port",
    "rendezvous.clusterDomain",
    "snapshots.size",
    "snapshots.storageClass",
    "snapshots.accessMode",
    "snapshots.path",
    "scheduling",
    "policy.ttl",
    "security.profile",
    "security.runAsUser",
    "security.fsGroup",
    "security.readOnlyRoot",
    "security.networkPolicy",
    "security.reportStatus",
    "security.serviceAccount",
)
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where torch's data loaders put their batches


def remarks(spec: JobSpec) -> list[str]:
    """What was asked for that this machine does not do, in a sentence; nothing where there is nothing."""
    given = msgspec.to_builtins(spec)
    ignored = [field for field in IGNORED if _given(given, field)]
    return [f"the local target ignores what only a cluster has: {', '.join(ignored)}"] if ignored else []


def _given(tree: Mapping[str, Any], field: str) -> bool:
    """Whether a field, or any of a section's, is not at its default: only what is not, is written down."""
    section, _, key = field.partition(".")
    return key in tree.get(section, {}) if key else bool(tree.get(section))


def insist(submission: Submission) -> None:
    """Refuse what could only fail later.

    Raises:
        UnsupportedError: this interpreter lacks torch or the trainer.
        UsageError: the script is not there.
    """
    _packages()
    _script(submission)


def examine(submission: Submission, state: Path) -> Iterator[Finding]:
    """All checks of this machine; ``state`` is where jobs and their snapshots are kept."""
    spec = submission.spec
    checks: list[tuple[str, Callable[[], str]]] = [
        ("packages", _packages),
        ("script", partial(_script, submission)),
        ("GPUs", partial(_gpus, spec)),
        ("shared memory", partial(_shared_memory, spec)),
        ("disk", partial(_disk, state)),
        ("processors", partial(_processors, spec)),
        ("loopback", _loopback),
    ]
    return look(checks)


def _packages() -> str:
    if missing := [name for name in ("torch", "kittrain") if importlib.util.find_spec(name) is None]:
        raise UnsupportedError(
            f"the local target runs the ranks with {sys.executable}, which lacks {' and '.join(missing)}",
            fix="install the kit with its trainer there: pip install 'kittrain[trainer]'",
        )
    return f"{sys.executable} has torch and the trainer"


def _script(submission: Submission) -> str:
    script = submission.spec.script
    if script and not (submission.folder / script).is_file():
        fix = f"give a path that is right from {submission.folder}, or -m MODULE"
        raise UsageError(f"command: no script {script!r}", fix=fix)
    return script or f"module {submission.spec.command[-1]}"


def _gpus(spec: JobSpec) -> str:
    there, wanted = len([*Path("/dev").glob("nvidia[0-9]*")]), spec.gpus_per_node * spec.max_nodes
    if wanted > there:
        what = f"{spec.max_nodes} nodes of {spec.gpus_per_node} are {wanted}, and this machine has {there}"
        raise UnsupportedError(what, fix="ask for fewer, or run with --backend gloo on the CPU")
    return f"{wanted} of {there}" if wanted else "none asked for"


def _shared_memory(spec: JobSpec) -> str:
    if not SHARED_MEMORY.is_dir():
        return "this system has none to be filled"
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < amount(spec.shared_memory):
        raise Doubt(f"{format_bytes(free)} free, a pod would have {spec.shared_memory}", fix=f"enlarge {SHARED_MEMORY}")
    return f"{format_bytes(free)} are free"


def _disk(state: Path) -> str:
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    if not os.access(there, os.W_OK):
        raise TargetError(f"{there} cannot be written to", fix="set XDG_STATE_HOME to a folder of yours")
    free = shutil.disk_usage(there).free
    if free < LITTLE:
        raise Doubt(f"{format_bytes(free)} left for snapshots, in {state}", fix="free some, or --keep fewer")
    return f"{format_bytes(free)} are free for snapshots, in {state}"


def _processors(spec: JobSpec) -> str:
    ranks, cores = spec.max_nodes * spec.ranks_per_node, os.cpu_count() or 1
    if ranks > cores and not spec.gpus_per_node:
        raise Doubt(f"{ranks} ranks share {cores} cores", fix="fewer ranks train faster here; for a trial it is fine")
    return f"{cores} for {ranks} ranks"


def _loopback() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return "ports can be opened, which ranks meet by"
    except OSError as error:
        raise TargetError(f"no port can be opened on 127.0.0.1: {error}", fix="see the machine's firewall") from error
