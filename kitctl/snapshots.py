"""The output of the trainer's snapshot tool (``python -m kittrain.snapshots``), as types. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from kitctl.errors import TargetError

T = TypeVar("T")


class Output(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the output; unknown keys, of an image of another version, are ignored."""


class Snapshot(Output, frozen=True, kw_only=True):
    """A snapshot; what follows from its manifest is None where that cannot be trusted.

    ``created`` is Unix seconds, ``size`` bytes; ``epoch``, from 1, is that of its last step.
    """

    name: str
    condition: str
    reason: str
    step: int
    generation: int
    size: int
    epoch: int | None
    run: str | None
    world_size: int | None
    created: float | None


class LedgerEntry(Output, frozen=True, kw_only=True):
    """An entry of the ledger: a generation's steps in an epoch, and the positions in its order that they consumed."""

    generation: int
    epoch: int
    first_step: int
    last_step: int
    start: int
    stop: int
    world_size: int


class Tensor(Output, frozen=True, kw_only=True):
    """One of the model's tensors; ``size`` is bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int


class SnapshotDetails(Snapshot, frozen=True, kw_only=True):
    """A snapshot with the contents of its manifest."""

    job: str
    position: int
    samples: int
    batch: int
    seed: int
    torch: str
    parent: str
    digest: str
    ledger: tuple[LedgerEntry, ...]
    tensors: tuple[Tensor, ...]


class EarlierData(Output, frozen=True, kw_only=True):
    """A part of a history in an earlier order of the data; ``before`` counts the epochs before it."""

    samples: int
    batch: int
    seed: int
    before: int
    epochs: int
    position: int
    counted: int
    steps: int


class Proof(Output, frozen=True, kw_only=True):
    """What a snapshot's history proves; ``broken`` is where it contradicts itself, ``entry`` the index in the ledger.

    The numbers are those of the current order of the data; ``earlier`` has the parts before, in other orders.
    """

    snapshot: str
    before: int = 0
    epochs: int
    position: int
    samples: int
    counted: int
    steps: int
    earlier: tuple[EarlierData, ...] = ()
    generations: int
    broken: str
    entry: int | None
    ledger: tuple[LedgerEntry, ...]


class Audit(Output, frozen=True, kw_only=True):
    """The proofs of all snapshots, the newest first; ``unusable`` are the snapshots that cannot be read."""

    proofs: tuple[Proof, ...]
    unusable: tuple[Snapshot, ...]

    @property
    def holds(self) -> bool:
        """Whether there is a history, and all of it is proved."""
        return bool(self.proofs) and not self.unusable and not any(proof.broken for proof in self.proofs)


def parse(answer: bytes, kind: type[T]) -> T:
    """Parse the output of the snapshot tool.

    Raises:
        TargetError: unexpected output, as of a trainer of another version.
    """
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        fix = "use an image of kitctl's version"
        raise TargetError(f"unexpected output of the snapshot tool: {error}", fix=fix) from error
