"""A job's folder: where everything that is known about it lies. Reads and writes files, decides nothing.

<state>/jobs/<namespace>/<name>/
    job.json            what was submitted: spec, run id, folder (written once)
    secret              what the run's nodes prove to know (written once, for the user's eyes alone)
    wanted.json         what is wanted of it: nodes, suspended, cancelled, restarts (written by verbs)
    runtime.json        what the supervisor chose: the rendezvous port
    end.json            how it ended; absent while it lives
    report.json         published by rank 0's agent
    supervisor.lock     held by the supervisor that is alive;  supervisor.log  its words
    nodes/<i>/lock      held by the shim that is alive
    nodes/<i>/<attempt>.{start,exit}.json  <attempt>.log  <attempt>.termination.json
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec

from kitctl.errors import TargetError
from kitctl.facts import Report, Termination
from kitctl.targets.local.records import End, Exited, Job, Runtime, Started, Wanted

T = TypeVar("T")
SECRET: Final = 32  # bytes


def state_home() -> Path:
    """The user's state folder of this kit (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "kitctl"


class NodeFolder:
    """One node's files."""

    def __init__(self, path: Path, index: int) -> None:
        self.path = path
        self.index = index

    @property
    def lock(self) -> Path:
        """Held by the shim that is alive."""
        return self.path / "lock"

    @property
    def attempts(self) -> int:
        """How often this node was started."""
        return max((int(path.name.partition(".")[0]) for path in self.path.glob("*.log")), default=0)

    def log(self, attempt: int) -> Path:
        """Everything that the agent of one attempt wrote, each line with its time."""
        return self.path / f"{attempt}.log"

    def started(self, attempt: int) -> Started | None:
        """When and as what an attempt began."""
        return read(self.path / f"{attempt}.start.json", Started)

    def exited(self, attempt: int) -> Exited | None:
        """How an attempt ended; None while it runs, or if its shim was killed too."""
        return read(self.path / f"{attempt}.exit.json", Exited)

    def termination_path(self, attempt: int) -> Path:
        """Where the agent writes why it ended."""
        return self.path / f"{attempt}.termination.json"

    def termination(self, attempt: int) -> Termination | None:
        """Why an attempt ended, in the agent's words."""
        return read(self.termination_path(attempt), Termination)

    def alive(self) -> bool:
        """Whether a shim runs this node now."""
        return locked(self.lock)


class JobFolder:
    """One job's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lock(self) -> Path:
        """Held by the supervisor that is alive."""
        return self.path / "supervisor.lock"

    @property
    def job(self) -> Job:
        """What was submitted."""
        return self._own("job.json", Job)

    @property
    def wanted(self) -> Wanted:
        """What is wanted of it now."""
        return self._own("wanted.json", Wanted)

    @property
    def runtime(self) -> Runtime | None:
        """What the supervisor chose."""
        return read(self.path / "runtime.json", Runtime)

    @property
    def end(self) -> End | None:
        """How it ended."""
        return read(self.path / "end.json", End)

    @property
    def secret_path(self) -> Path:
        """What the run's nodes prove to know."""
        return self.path / "secret"

    @property
    def report_path(self) -> Path:
        """Where rank 0's agent publishes."""
        return self.path / "report.json"

    @property
    def report(self) -> Report | None:
        """What rank 0's agent published last."""
        return read(self.report_path, Report)

    def node(self, index: int) -> NodeFolder:
        """Node ``index``, whether it was ever started or not."""
        return NodeFolder(self.path / "nodes" / str(index), index)

    def nodes(self) -> list[NodeFolder]:
        """All nodes that were ever started, by index."""
        indexes = sorted(int(path.name) for path in (self.path / "nodes").glob("[0-9]*"))
        return [self.node(index) for index in indexes]

    def _own(self, name: str, kind: type[T]) -> T:
        """A file without which there is no job.

        Raises:
            TargetError: it is not what this version of kitctl writes.
        """
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError) as error:
            what = f"{self.path / name} cannot be read: {error}"
            raise TargetError(what, fix="another version of kitctl wrote it, or it was damaged: remove it") from error

    def write(self, part: Job | Wanted | Runtime | End) -> None:
        """Replace one of the job's own files, whole or not at all."""
        write(self.path / f"{type(part).__name__.lower()}.json", part)

    def reopen(self) -> None:
        """Forget how it ended."""
        (self.path / "end.json").unlink(missing_ok=True)

    def supervised(self) -> bool:
        """Whether a supervisor is alive."""
        return locked(self.lock)


def create(path: Path, job: Job, wanted: Wanted) -> JobFolder:
    """Make a job's folder, complete or not at all.

    Raises:
        FileExistsError: there is one of that name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))  # mode 0700: env may hold what is private
    try:
        folder = JobFolder(draft)
        folder.write(job)
        folder.write(wanted)
        with os.fdopen(os.open(folder.secret_path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as secret:
            secret.write(secrets.token_hex(SECRET))
        if path.exists():  # rename() would replace an empty folder, and fail only on a full one
            raise FileExistsError(path)
        draft.rename(path)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise FileExistsError(path) if path.exists() else error from error
    return JobFolder(path)


def read(path: Path, kind: type[T]) -> T | None:
    """A JSON file as ``kind``; None if it is absent, or not (yet) what it should be."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def write(path: Path, value: msgspec.Struct) -> None:
    """Replace a JSON file, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(value))
    draft.replace(path)


def locked(path: Path) -> bool:
    """Whether somebody holds the lock. Asks with a shared lock, so that askers do not see each other."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def hold(path: Path, patience: float = 1.0) -> Iterator[IO[bytes] | None]:
    """Hold a lock until the block (or the process) ends; None if somebody else still has it after ``patience``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    yield None
                    return
                time.sleep(0.01)  # an asker holds a shared lock for microseconds; a living owner for good
            else:
                yield file
                return
