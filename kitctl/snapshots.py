"""What the trainer says about a job's snapshots (``kittrain.snapshots``), as values. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from kitctl.errors import TargetError

T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of what the trainer answers; keys that an image of another version adds are passed over."""


class Snapshot(Answer, frozen=True, kw_only=True):
    """A folder among the snapshots; what follows from its manifest is None where that cannot be trusted.

    ``created`` is Unix seconds, ``size`` bytes; ``epoch``, from 1 on, is that of its last step.
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


class Entry(Answer, frozen=True, kw_only=True):
    """An entry of the ledger: a generation's steps in an epoch, and the positions of its order that they took."""

    generation: int
    epoch: int
    first_step: int
    last_step: int
    start: int
    stop: int
    world_size: int


class Tensor(Answer, frozen=True, kw_only=True):
    """One of the model's tensors; ``size`` is bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int


class Details(Snapshot, frozen=True, kw_only=True):
    """All about one snapshot."""

    job: str
    position: int
    samples: int
    batch: int
    seed: int
    torch: str
    parent: str
    digest: str
    ledger: tuple[Entry, ...]
    tensors: tuple[Tensor, ...]


class Part(Answer, frozen=True, kw_only=True):
    """A part of a history in one order of the data; ``before`` it lie so many epochs in other orders."""

    samples: int
    batch: int
    seed: int
    before: int
    epochs: int
    position: int
    counted: int
    steps: int


class Proof(Answer, frozen=True, kw_only=True):
    """What one snapshot's history proves; ``broken`` says where it does not, ``entry`` at which of the ledger's.

    Its numbers are those of the present order of the data; ``earlier`` has the parts before, in other orders.
    """

    snapshot: str
    before: int = 0
    epochs: int
    position: int
    samples: int
    counted: int
    steps: int
    earlier: tuple[Part, ...] = ()
    generations: int
    broken: str
    entry: int | None
    ledger: tuple[Entry, ...]


class Audit(Answer, frozen=True, kw_only=True):
    """The proofs of all snapshots, the newest first; ``unusable`` are those that cannot vouch for anything."""

    proofs: tuple[Proof, ...]
    unusable: tuple[Snapshot, ...]

    @property
    def holds(self) -> bool:
        """Whether there is a history, and all of it is proved."""
        return bool(self.proofs) and not self.unusable and not any(proof.broken for proof in self.proofs)


def read(answer: bytes, kind: type[T]) -> T:
    """An answer as a value.

    Raises:
        TargetError: it is none; the trainer there is of another version.
    """
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        fix = "the image's trainer must be of kitctl's version"
        raise TargetError(f"what answered beside the snapshots cannot be understood: {error}", fix=fix) from error
