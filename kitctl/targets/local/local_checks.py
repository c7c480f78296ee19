"""The checks of this machine: those that ``submit`` requires, and the others of ``kitctl doctor``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from kitctl.base.errors import TargetError, UnsupportedError, UsageError
from kitctl.base.quantity import amount, format_bytes, pluralize
from kitctl.code import syntax
from kitctl.code.workdir.imports import import_warnings
from kitctl.spec import remarks as job_remarks
from kitctl.spec.job_spec import JobSpec
from kitctl.state.checks import CheckWarning, Finding, run_checks
from kitctl.targets import Submission, mirrors
from kitctl.targets.local import interpreter, launch, memory_folders
from kitjob.document import written

LOW_DISK_BYTES: Final = 1 << 30  # bytes; less free space than this is a warning
# The fields of a job that have no effect on this machine.
IGNORED: Final = (
    "labels",
    "annotations",
    "imagePullSecrets",
    "kind",
    "image",
    "trainer",
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
    "metrics.from",
    "policy.ttl",
    "policy.drainTaints",
    "security.profile",
    "security.runAsUser",
    "security.fsGroup",
    "security.readOnlyRoot",
    "security.networkPolicy",
    "security.reportStatus",
    "security.serviceAccount",
    "pod",
)
DEVICES: Final = Path("/dev")
OTHER_GPUS: Final = ("dxg", "kfd")  # devices for all GPUs of Windows' subsystem and of AMD
MANY_RANKS: Final = 8  # for each core; a few are fine for a test
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where torch's data loaders put their batches


def remarks(submission: Submission) -> list[str]:
    """Warns of fields that are set and have no effect here, and of modules that a folder lacks."""
    spec = submission.spec
    missing = import_warnings(spec, submission.sources, submission.folder) if spec.workdir else ()
    given = written(spec)
    ignored = [field for field in IGNORED if _given(given, field)]
    remarks = [f"the local target ignores what only a cluster has: {', '.join(ignored)}"] if ignored else []
    likely = [_crowded(spec), _little_memory(spec), _likely_slip(submission)] if submission.checks else []
    return [*remarks, *job_remarks.remarks(spec), *missing, *filter(None, likely)]


def _given(tree: Mapping[str, Any], field: str) -> bool:
    """Whether a field, or any field of a section, is set: defaults are left out of the mapping."""
    section, _, key = field.partition(".")
    return key in tree.get(section, {}) if key else bool(tree.get(section))


def require_runnable(submission: Submission) -> None:
    """Raise an error for a job that could only fail later.

    Raises:
        UnsupportedError: this interpreter lacks torch or the trainer.
        UsageError: the script, or a folder with wheels, does not exist.
    """
    _packages(submission)
    _requirements(submission)
    _script(submission)
    _outputs(submission.spec)
    if submission.spec.snapshots.in_memory and not memory_folders.ROOT.is_dir():
        what = f"snapshots.storage: memory needs {memory_folders.ROOT}, which this machine lacks"
        raise UnsupportedError(what, fix="snapshots.storage: claim or perNode")
    if submission.checks:
        with suppress(CheckWarning):  # a remark
            _syntax(submission)
        _interface(submission.spec)
        _gpus(submission.spec)


def require_mirror(submission: Submission, state: Path) -> tuple[str, ...]:
    """Raise an error for a job whose mirror cannot be used from here, where its nodes run; returns what to warn of.

    Raises:
        UsageError: with the fix.
    """
    spec = submission.spec
    if not spec.snapshots.mirror:
        return ()
    python = interpreter.command(interpreter.find(spec.python, submission.folder), ())
    library = str(interpreter.link_library(state)) if spec.python else ""
    environ = interpreter.with_library({**os.environ, **spec.env}, library)
    found = mirrors.look(spec, python, environ, str(launch.snapshot_dir(spec, state)))
    if not found.asked and submission.sources.requirements:
        return ()  # they may have the library
    if found.refused:
        what, _, fix = found.refused.partition("; fix: ")
        raise UsageError(what, fix=fix)
    asks_again = f"snapshots.mirror: {found.unreached}; the job's node 0 asks again" if found.unreached else ""
    return (*found.warnings, *filter(None, [asks_again]))


def check_machine(submission: Submission, state: Path) -> Iterator[Finding]:
    """All checks of this machine; ``state`` is the folder of all jobs and their snapshots."""
    spec = submission.spec
    checks: list[tuple[str, Callable[[], str]]] = [
        ("packages", partial(_packages, submission)),
        ("requirements", partial(_requirements, submission)),
        ("script", partial(_script, submission)),
        ("syntax", partial(_syntax, submission)),
        ("outputs", partial(_outputs, spec)),
        ("GPUs", partial(_gpus, spec)),
        ("shared memory", partial(_shared_memory, spec)),
        ("mirror", partial(_mirror, submission, state)),
        ("disk", partial(_disk, state)),
        ("processors", partial(_processors, spec)),
        ("loopback", _loopback),
        ("interface", partial(_interface, spec)),
    ]
    return run_checks(checks)


def _outputs(spec: JobSpec) -> str:
    if spec.outputs and not spec.workdir:
        what = f"outputs: without a workdir all nodes run in the folder that you submit from, where {spec.outputs} is"
        raise UsageError(f"{what} one folder already", fix="leave out --outputs, or send the folder: --workdir .")
    return f"{spec.outputs} is one folder for all nodes" if spec.outputs else "in the working folders"


def _packages(submission: Submission) -> str:
    installs = submission.sources.requirements is not None
    if python := submission.spec.python:
        return interpreter.check(interpreter.find(python, submission.folder), pip=installs)
    if missing := [name for name in ("torch", "kittrain") if importlib.util.find_spec(name) is None]:
        raise UnsupportedError(
            f"the local target runs the ranks with {sys.executable}, which lacks {' and '.join(missing)}",
            fix="pip install 'kittrain[trainer]' there, or name an interpreter that has torch: --python PATH",
        )
    if installs and importlib.util.find_spec("pip") is None:
        what = f"{sys.executable} has no pip, which installs the requirements"
        raise UnsupportedError(what, fix=f"{sys.executable} -m ensurepip")
    return f"{sys.executable} has torch and the trainer"


def _requirements(submission: Submission) -> str:
    """Where they come from, as far as that is on this machine."""
    requirements = submission.sources.requirements
    if requirements is None:
        return "none"
    for link in submission.spec.requirements.find_links:
        place = submission.folder / Path(link.removeprefix("file://")).expanduser()
        if ("://" not in link or link.startswith("file://")) and not place.is_dir():
            what = f"requirements.findLinks: {place} is not a folder"
            raise UsageError(what, fix="give a folder with wheels, or a URL")
    return f"of {requirements.folder}; pip installs them when the job starts"


def _script(submission: Submission) -> str:
    script = submission.spec.script
    workdir = submission.sources.workdir
    folder = workdir.folder if workdir else submission.folder
    if script and not (folder / script).is_file():
        fix = f"give a path relative to {folder}, or -m MODULE"
        raise UsageError(f"command: no script {script!r}", fix=fix)
    return script or f"module {submission.spec.command[-1]}"


def _syntax(submission: Submission) -> str:
    script = submission.spec.script
    if not script or not script.endswith(".py"):
        return "no script in Python"
    workdir = submission.sources.workdir
    path = (workdir.folder if workdir else submission.folder) / script
    try:
        found = syntax.mistake(script, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return f"{script} cannot be read as text"
    if found and submission.spec.python:
        raise CheckWarning(f"{found} (by {syntax.version()})", fix=f"check it with {submission.spec.python}")
    if found:
        raise UsageError(f"command: {found}", fix=f"correct that line; ranks run with {syntax.version()}")
    return f"{syntax.version()} parses {script}"


def _likely_slip(submission: Submission) -> str:
    try:
        _syntax(submission)
    except CheckWarning as warning:
        return f"{warning.message}; {warning.fix}"
    except UsageError:
        pass  # refused later
    return ""


def _interface(spec: JobSpec) -> str:
    """That of the job, as NCCL reads it: names, or how they begin; = for whole names, ^ for all others."""
    asked = spec.nccl.interface
    if not asked or asked.startswith("^"):
        return "loopback"
    there = [name for _, name in socket.if_nameindex()]
    whole, names = asked.startswith("="), asked.removeprefix("=").split(",")
    if not any(name == one if whole else one.startswith(name) for name in names for one in there):
        what = f"nccl.interface: this machine has no interface {asked!r}"
        raise UsageError(what, fix=f"leave out --interface: all nodes are here, and meet at {there[0]}")
    return f"{asked} is there"


def _gpus(spec: JobSpec) -> str:
    available, needed = len([*DEVICES.glob("nvidia[0-9]*")]), spec.gpus_per_node * spec.all_nodes
    if needed and any((DEVICES / name).exists() for name in OTHER_GPUS):
        return f"{needed} requested; those of this machine cannot be counted"
    if needed > available and spec.backend != "gloo":
        nodes, each = pluralize(spec.all_nodes, "node"), pluralize(spec.gpus_per_node, "GPU")
        needs = "needs" if spec.all_nodes == 1 else "need"
        what = f"{nodes} with {each} {needs} {needed}, and this machine has {available}"
        raise UnsupportedError(what, fix="request fewer, or run with --backend gloo on the CPU")
    return f"{needed} of {available}" if needed else "none requested"


def _shared_memory(spec: JobSpec) -> str:
    if not SHARED_MEMORY.is_dir():
        return "no /dev/shm"
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < amount(spec.shared_memory):
        raise CheckWarning(
            f"{format_bytes(free)} are free, a pod would have {spec.shared_memory}", fix=f"enlarge {SHARED_MEMORY}"
        )
    return f"{format_bytes(free)} are free"


def _mirror(submission: Submission, state: Path) -> str:
    if warnings := require_mirror(submission, state):
        raise CheckWarning("; ".join(warnings))
    return submission.spec.snapshots.mirror or "none"


def _disk(state: Path) -> str:
    existing = next(folder for folder in (state, *state.parents) if folder.exists())
    if not os.access(existing, os.W_OK):
        raise TargetError(f"{existing} is not writable", fix="set XDG_STATE_HOME to a folder that you can write to")
    free = shutil.disk_usage(existing).free
    if free < LOW_DISK_BYTES:
        raise CheckWarning(
            f"{format_bytes(free)} are free for snapshots, in {state}", fix="free disk space, or --keep fewer"
        )
    return f"{format_bytes(free)} are free for snapshots, in {state}"


def _little_memory(spec: JobSpec) -> str:
    """A warning if what the nodes keep in memory may not fit there: a container has 64 MiB unless it is given more."""
    root = memory_folders.ROOT
    free = shutil.disk_usage(root).free if spec.snapshots.in_memory and root.is_dir() else LOW_DISK_BYTES
    if free >= LOW_DISK_BYTES:
        return ""
    return (
        f"snapshots.storage: memory: {root} has {format_bytes(free)} left for all nodes, and each keeps up to four "
        "times the training state there; fix: enlarge it, as by docker run --shm-size, or snapshots.storage: perNode"
    )


def _crowded(spec: JobSpec) -> str:
    """A warning for a job whose ranks hardly get on, as one that was meant for a cluster."""
    ranks, cores = spec.max_ranks, os.cpu_count() or 1
    if spec.gpus_per_node or ranks <= MANY_RANKS * cores:
        return ""
    shared = f"{ranks} ranks share {pluralize(cores, 'core')} of this machine"
    return f"{shared}; fewer of them (--nodes, --procs-per-node) train faster"


def _processors(spec: JobSpec) -> str:
    ranks, cores = spec.max_ranks, os.cpu_count() or 1
    if ranks > cores and not spec.gpus_per_node:
        what = f"{ranks} ranks share {pluralize(cores, 'core')}"
        raise CheckWarning(what, fix="fewer ranks train faster here; fine for a test")
    return f"{cores} for {pluralize(ranks, 'rank')}"


def _loopback() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return "loopback ports available"
    except OSError as error:
        raise TargetError(f"no port can be opened on 127.0.0.1: {error}", fix="check the firewall") from error
