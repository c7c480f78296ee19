"""Operations on a job's snapshots: runs the trainer's snapshot tool where the snapshots are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kitctl.base.errors import TargetError
from kitctl.targets import SnapshotStore
from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.history import Audit, SnapshotDetails, SnapshotFacts

T = TypeVar("T")


class SnapshotTool(Protocol):
    """What runs the tool: a target, or this machine for an object store."""

    def run_snapshot_tool(self, store: SnapshotStore, args: Sequence[str]) -> Iterator[bytes]:
        """The tool's output, as it arrives."""


@dataclass(frozen=True, kw_only=True)
class SnapshotClient:
    """The snapshots of one job, which may be running, ended or deleted.

    ``which`` is a step, or the name of a snapshot; empty: the newest valid one.
    """

    target: SnapshotTool
    store: SnapshotStore

    def all(self) -> list[SnapshotFacts]:
        """All snapshots, the newest first, with damaged and unfinished ones."""
        return self._query(list[SnapshotFacts], "list")

    def verify(self, which: str = "") -> list[SnapshotFacts]:
        """Read every byte of all snapshots, or of one; each one's condition shows what was found."""
        return self._query(list[SnapshotFacts], "verify", *filter(None, [which]))

    def show(self, which: str = "") -> SnapshotDetails:
        """A snapshot with its manifest, its history, and the model's tensors."""
        return self._query(SnapshotDetails, "show", *filter(None, [which]))

    def audit(self) -> Audit:
        """Prove from the history that each sample of each epoch was counted exactly once."""
        return self._query(Audit, "audit")

    def prunable(self, keep: int, *, damaged: bool = False) -> list[SnapshotFacts]:
        """The snapshots that ``prune`` would delete: all but the ``keep`` newest valid ones; damaged ones if asked."""
        return self._query(list[SnapshotFacts], *_prune(keep, damaged))

    def prune(self, keep: int, chosen: list[SnapshotFacts], *, damaged: bool = False) -> list[SnapshotFacts]:
        """Delete the ``chosen`` ones, if they may still be; those that stay are verified first. Returns the deleted."""
        return self._query(list[SnapshotFacts], *_prune(keep, damaged), *(f"--drop={one.name}" for one in chosen))

    def export(self, which: str = "", form: str = "pt") -> Iterator[bytes]:
        """The model's weights as a file's bytes, ``pt`` or ``safetensors``: a state dict, no optimizer or history."""
        return self._stream("export", *filter(None, [which]), "--format", form)

    def _stream(self, *args: str) -> Iterator[bytes]:
        """The output of ``python -m kittrain.rank.snapshots ARGS``."""
        return self.target.run_snapshot_tool(self.store, args)

    def _query(self, kind: type[T], *args: str) -> T:
        """The same, parsed."""
        return parse(b"".join(self._stream(*args)), kind)


def _prune(keep: int, damaged: bool) -> tuple[str, ...]:  # noqa: FBT001 - private, and named as the option
    return ("prune", "--keep", str(keep), *(["--damaged"] if damaged else []))


def parse(answer: bytes, kind: type[T]) -> T:
    """Parse the output of the snapshot tool.

    Raises:
        TargetError: unexpected output, as of a trainer of another version.
    """
    try:
        found: T = typed.load(kind, answer)
    except MalformedError as error:
        fix = "use an image of kitctl's version"
        raise TargetError(f"unexpected output of the snapshot tool: {error}", fix=fix) from error
    return found
