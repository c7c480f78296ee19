"""What the trainer's snapshot tool prints (``python -m kittrain.rank.snapshots``) and kitctl reads."""

from __future__ import annotations

from kitjob.record import Record


class SnapshotFacts(Record):
    """A snapshot; what follows from its manifest is None where that cannot be trusted."""

    name: str
    """Name of its folder."""
    condition: str
    """``whole``, ``verified`` (every byte was read), ``damaged``, ``foreign`` (of another version), ``unreadable`` or
    ``unfinished``."""
    reason: str
    """Why it cannot be used. Empty: it can."""
    step: int
    """The step that it was taken after."""
    generation: int
    """The generation of ranks that took it; each start of the ranks is a new one."""
    size: int
    """Size of all its files."""
    epoch: int | None
    """Epoch of its last step, from 1."""
    run: str | None
    """Id of the run that took it."""
    world_size: int | None
    """Ranks of that run."""
    created: float | None
    """When it was taken."""
    not_finite: str = ""
    """Why its state is not finite, such as `the loss of step 31 is nan`. Empty: no such value was found."""


class LedgerEntry(Record):
    """The steps that one generation took in one epoch, and the samples that they consumed."""

    generation: int
    """Generation of the ranks."""
    epoch: int
    """Epoch, from 0."""
    first_step: int
    """First step."""
    last_step: int
    """Last step."""
    start: int
    """First position in the epoch's order of samples."""
    stop: int
    """Position after the last one."""
    world_size: int
    """Ranks."""


class Tensor(Record):
    """A tensor of the model."""

    name: str
    """Its name in the state dict."""
    shape: tuple[int, ...]
    """Its shape."""
    dtype: str
    """Its type, as torch names it."""
    size: int
    """Bytes."""


class SnapshotDetails(SnapshotFacts):
    """What the manifest of a snapshot says."""

    job: str
    """The job that took it."""
    position: int
    """Samples of the epoch that are consumed."""
    samples: int
    """Samples of an epoch. 0: the order of the data is not known."""
    batch: int
    """Samples of a step, over all ranks."""
    seed: int
    """Seed of the order of samples."""
    torch: str
    """Version of torch that wrote it."""
    parent: str
    """The snapshot that its run resumed from. Empty: none."""
    digest: str
    """Digest of its manifest."""
    ledger: tuple[LedgerEntry, ...]
    """The history that it continues."""
    tensors: tuple[Tensor, ...]
    """The model's tensors."""


class EarlierData(Record):
    """The part of a history that used another order of the data."""

    samples: int
    """Samples of an epoch. 0: the order of the data is not known, and only steps are counted."""
    batch: int
    """Samples of a step."""
    seed: int
    """Seed of the order of samples."""
    before: int
    """Epochs before this part."""
    epochs: int
    """Whole epochs of this part."""
    position: int
    """Samples of one more epoch."""
    counted: int
    """Samples that were counted."""
    steps: int
    """Steps that were taken."""


class Proof(Record):
    """What the history of one snapshot proves, for the current order of the data."""

    snapshot: str
    """Name of the snapshot."""
    before: int = 0
    """Epochs in earlier orders of the data."""
    epochs: int
    """Whole epochs."""
    position: int
    """Samples of one more epoch."""
    samples: int
    """Samples of an epoch. 0: the order of the data is not known, and only steps are counted."""
    counted: int
    """Samples that were counted exactly once."""
    steps: int
    """Steps that were taken."""
    earlier: tuple[EarlierData, ...] = ()
    """The parts in earlier orders of the data."""
    generations: int
    """How often ranks started."""
    broken: str
    """Where the history contradicts itself. Empty: nowhere."""
    entry: int | None
    """Index of the ledger's entry where it does."""
    ledger: tuple[LedgerEntry, ...]
    """The history."""

    @property
    def has_samples(self) -> bool:
        """Whether the history says which samples all of its steps took."""
        return bool(self.samples) and all(part.samples for part in self.earlier)


class Audit(Record):
    """The proofs of all snapshots, the newest first; ``unusable`` are the snapshots that cannot be read."""

    proofs: tuple[Proof, ...]
    unusable: tuple[SnapshotFacts, ...]

    @property
    def holds(self) -> bool:
        """Whether there is a history, and all of it is proved."""
        proved = all(proof.has_samples and not proof.broken for proof in self.proofs)
        return bool(self.proofs) and not self.unusable and proved
