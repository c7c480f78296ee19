"""A job's folder, which holds all of its state. Reads and writes files, decides nothing.

<state>/jobs/<namespace>/<name>/
    job.json            what was submitted: spec, run id, folder (written once)
    secret              by which the run's nodes authenticate (written once, readable by the user only)
    desired.json        desired state: nodes, suspended, cancelled, restarts (written by commands)
    runtime.json        what the supervisor chose: the rendezvous port
    result.json         how it ended; absent before
    report.json         published by rank 0's agent
    preparing-<i>.json  what a node does before it joins; absent while it does nothing that takes long
    supervisor.lock     held by the running supervisor;  supervisor.log  its log
    code/               the folder that was sent, in a store (``code_store``)
    nodes/<i>/workdir/  the node's copy of it
    nodes/<i>/lock      held by the running shim
    nodes/<i>/<attempt>.{start,exit}.json  <attempt>.log  <attempt>.termination.json
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from kitctl.base.encoding import decode, encode
from kitctl.base.errors import SpecError, TargetError
from kitctl.base.user_folders import user_folder
from kitctl.state.last_words import last_words
from kitctl.state.logs import parse
from kitctl.targets.local.code_store import STORE
from kitctl.targets.local.disk import NO_ROOM
from kitctl.targets.local.locks import is_locked
from kitctl.targets.local.reconcile import failed_to_start
from kitctl.targets.local.records import Desired, Exited, Result, Runtime, Started, SubmittedJob
from kitjob.record import Record
from kitjob.report import Preparation, Report, Termination

T = TypeVar("T")
SECRET: Final = 32  # bytes
TAIL_BYTES: Final = 1 << 16  # of a log: enough for several tracebacks


def state_home() -> Path:
    """The user's state folder of this kit (XDG base directories)."""
    return user_folder("XDG_STATE_HOME", ".local/state") / "kitctl"


def packages_home() -> Path:
    """The folder in the user's cache where the requirements of jobs are installed."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "kitctl" / "packages"


FILES: Final[Mapping[type[msgspec.Struct], str]] = {
    SubmittedJob: "job.json",
    Desired: "desired.json",
    Runtime: "runtime.json",
    Result: "result.json",
}


class NodeFolder:
    """One node's files."""

    def __init__(self, path: Path, index: int) -> None:
        self.path = path
        self.index = index

    @property
    def lock(self) -> Path:
        """Held by the running shim."""
        return self.path / "lock"

    @property
    def attempts(self) -> int:
        """How often this node was started."""
        return max((int(path.name.partition(".")[0]) for path in self.path.glob("*.log")), default=0)

    def log(self, attempt: int) -> Path:
        """The output of one attempt's agent, each line with its time."""
        return self.path / f"{attempt}.log"

    def started(self, attempt: int) -> Started | None:
        """When an attempt started, and its process id."""
        return read(self.path / f"{attempt}.start.json", Started)

    @property
    def workdir(self) -> Path:
        """The working folder of its ranks, if a folder was sent with the job."""
        return self.path / "workdir"

    def exited(self, attempt: int) -> Exited | None:
        """How an attempt ended; None while it runs, or if its shim was killed as well."""
        return read(self.path / f"{attempt}.exit.json", Exited)

    def termination_path(self, attempt: int) -> Path:
        """Where the agent writes why it ended."""
        return self.path / f"{attempt}.termination.json"

    def termination(self, attempt: int) -> Termination | None:
        """Why an attempt ended, according to the agent."""
        return read(self.termination_path(attempt), Termination)

    def said(self, attempt: int) -> str:
        """What the process of an attempt has said last, if it ended without a message of its agent; else empty."""
        if not failed_to_start(self.exited(attempt), self.termination(attempt)):
            return ""
        return last_words([parse(line, self.index).text for line in _tail(self.log(attempt)).splitlines()])

    def alive(self) -> bool:
        """Whether a shim runs this node."""
        return is_locked(self.lock)


class JobFolder:
    """One job's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lock(self) -> Path:
        """Held by the running supervisor."""
        return self.path / "supervisor.lock"

    @cached_property
    def job(self) -> SubmittedJob:
        """What was submitted, which never changes: another job of the name has another folder."""
        job = self._require("job.json", SubmittedJob)
        return replace(job, spec=job.spec.in_namespace(self.path.parent.name))

    @property
    def desired(self) -> Desired:
        """Its desired state."""
        return self._require("desired.json", Desired)

    @property
    def code_store(self) -> Path:
        """The store with the folder and the requirements that were sent with the job."""
        return self.path / STORE

    @property
    def runtime(self) -> Runtime | None:
        """What the supervisor chose."""
        return read(self.path / "runtime.json", Runtime)

    @property
    def result(self) -> Result | None:
        """Its result; None before its end."""
        return read(self.path / "result.json", Result)

    @property
    def secret_path(self) -> Path:
        """The file with the secret by which the run's nodes authenticate."""
        return self.path / "secret"

    @property
    def report_path(self) -> Path:
        """Where rank 0's agent writes its report."""
        return self.path / "report.json"

    @property
    def report(self) -> Report | None:
        """The latest report of rank 0's agent."""
        return read(self.report_path, Report)

    @property
    def preparing(self) -> dict[int, Preparation]:
        """What nodes do before they join, by node."""
        found = {node.index: read(self.path / f"preparing-{node.index}.json", Preparation) for node in self.nodes()}
        return {index: note for index, note in found.items() if note}

    def node(self, index: int) -> NodeFolder:
        """Node ``index``, even if it was never started."""
        return NodeFolder(self.path / "nodes" / str(index), index)

    def nodes(self) -> list[NodeFolder]:
        """All nodes that were ever started, sorted by index."""
        indexes = sorted(int(path.name) for path in (self.path / "nodes").glob("[0-9]*"))
        return [self.node(index) for index in indexes]

    def _require(self, name: str, kind: type[T]) -> T:
        """Read a file that every job has.

        Raises:
            TargetError: it is not a file of this version of kitctl.
        """
        try:
            return decode((self.path / name).read_bytes(), kind)
        except (OSError, msgspec.MsgspecError, SpecError) as error:
            what = f"{self.path / name} cannot be read: {error}"
            raise TargetError(what, fix="another version of kitctl wrote it, or it was damaged: remove it") from error

    def write(self, part: SubmittedJob | Desired | Runtime | Result) -> None:
        """Replace one of the job's files atomically."""
        write(self.path / FILES[type(part)], part)

    def clear_result(self) -> None:
        """Delete its result."""
        (self.path / "result.json").unlink(missing_ok=True)

    @property
    def supervisor_log(self) -> Path:
        """The log of its supervisors."""
        return self.path / "supervisor.log"

    @property
    def supervisor_lines(self) -> str:
        """The end of that log; empty if there is none."""
        return _tail(self.supervisor_log)

    def supervised(self) -> bool:
        """Whether a supervisor is running."""
        return is_locked(self.lock)


def create(path: Path, job: SubmittedJob, desired: Desired, fill: Callable[[Path], None] = lambda _: None) -> JobFolder:
    """Create a job's folder atomically; ``fill`` writes more files to it.

    Raises:
        FileExistsError: one of that name exists.
        TargetError: there is no place for it.
        Exception: what ``fill`` raises.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"no job can be kept in {path.parent}: {error.strerror}: {error.filename}"
        raise TargetError(what, fix="set XDG_STATE_HOME to a folder that you can write") from error
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))  # mode 0700: the environment may hold credentials
    try:
        folder = JobFolder(draft)
        folder.write(job)
        folder.write(desired)
        fill(draft)
        with os.fdopen(os.open(folder.secret_path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as secret:
            secret.write(secrets.token_hex(SECRET))
        _rename(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return JobFolder(path)


def _tail(path: Path) -> str:
    """The end of a log; empty if there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(path.stat().st_size - TAIL_BYTES, 0))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _rename(draft: Path, path: Path) -> None:
    """Give a folder its name, unless a job has it: what nodes wrote to a folder that was deleted is none."""
    if path.exists() and not (path / "job.json").exists():
        path.rename(aside := draft.with_name(f".old{draft.name}"))
        shutil.rmtree(aside, ignore_errors=True)
    if path.exists():  # rename() would replace an empty folder, and fail only on a full one
        raise FileExistsError(path)
    try:
        draft.rename(path)
    except OSError as error:
        raise FileExistsError(path) if path.exists() else error from error


def read(path: Path, kind: type[T]) -> T | None:
    """A JSON file as ``kind``; None if it is absent or invalid."""
    try:
        return decode(path.read_bytes(), kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def write(path: Path, value: msgspec.Struct | Record) -> None:
    """Replace a JSON file, atomically where there is room.

    What root writes is the file of who owns the folder: they may have to read it.
    """
    data = encode(value)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
    except OSError as error:
        draft.unlink(missing_ok=True)
        if error.errno in NO_ROOM and _overwrite(path, data):
            return
        raise
    owner = path.parent.stat()
    if os.geteuid() == 0 != owner.st_uid:
        os.chown(draft, owner.st_uid, owner.st_gid)
    draft.replace(path)


def _overwrite(path: Path, data: bytes) -> bool:
    """Write to a file's own blocks, as a full disk has no others: a job can be cancelled; False if they are too few."""
    try:
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size < len(data):
                return False
            file.write(data.ljust(size))
    except OSError:
        return False
    return True
