"""Restores the newest state that the folders of all nodes hold together, each some of a snapshot's shards. Collective.

One rank of each node tells what its folder holds. The holder of a shard reads it for all ranks, verified; if it is
damaged there, it is set aside, and the next holder reads its copy.

Why: decision 62.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import CorruptError, Tail
from kittrain.rank.snapshots.folder import copies_status, snapshot
from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.candidates import Candidates
from kittrain.rank.snapshots.folder.held import Held, Holdings, Spread, complete, of_manifest, spread
from kittrain.rank.snapshots.folder.listing import NOTHING
from kittrain.rank.snapshots.folder.restore_order import RestorePoint
from kittrain.rank.snapshots.folder.snapshot import QUARANTINE, IncompatibleError, Manifest
from kittrain.rank.snapshots.read.restore import Restored
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.snapshots.state.state_reader import FAILURES, UNUSABLE, Broadcaster, Extras, StateReader
from kittrain.rank.world.distributed import World
from kittrain.system import files
from kittrain.system.heartbeat import Phase
from kittrain.system.storage import StorageUnavailableError, retry_io

BLOCK = 16 << 20  # bytes that are sent at once


@dataclass
class NodeFolders:
    """The folders of all nodes.

    Attributes:
        world: all ranks.
        folder: of this rank's node.
        candidates: on rank 0.
        not_whole: on rank 0, why the newest snapshot is not used, if no node has some of its shards.
    """

    world: World
    folder: Path
    candidates: Candidates | None
    not_whole: str = ""
    _left_out: set[tuple[int, int, str]] = field(default_factory=set)
    _said: set[tuple[int, int, str]] = field(default_factory=set)

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for its node."""
        return self.world.env.local_rank == 0

    def restore(self, state: State) -> Restored | None:
        """Set the state to the newest valid one that is compatible; None: there is none, so training begins.

        Raises:
            SnapshotError: a snapshot is incompatible, or there were snapshots, and none is whole any more.
            StorageUnavailableError: a folder does not respond.
        """
        reader = StateReader(self.world, state)
        while (found := self._next()) is not None:
            one, manifest = found
            try:
                extras = self._read(reader, one, manifest)
            except UNUSABLE as problem:
                self._set_aside(one, manifest, problem)
            else:
                return Restored(point=RestorePoint(manifest=manifest, parent=manifest), extras=extras)
        if reader.partially_read:
            raise SnapshotError("a snapshot proved unusable after a part of it had been loaded: restart the ranks")
        return None

    def newest(self) -> Manifest | None:
        """The manifest of the newest snapshot that is complete and compatible; None: there is none."""
        found = self._next()
        return found[1] if found else None

    def whole(self) -> tuple[int, int] | None:
        """Generation and step of the newest whole snapshot, zeros for none; None if there is no newer one."""
        known = self._spread()
        found = [(one.generation, one.step) for one in complete(known)[:1]] or [NOTHING]
        is_newest = bool(known) and not known[0].missing
        return next(iter(self.world.broadcast_value([] if is_newest else found, list[tuple[int, int]])), None)

    def bring(self, manifest: Manifest) -> None:
        """Bring a snapshot's shards to rank 0's folder, as far as they are not there.

        Raises:
            CorruptError: one is damaged, or nobody has it.
            StorageUnavailableError: a folder does not respond.
        """
        world, path = self.world, self.folder / manifest.name
        one = next((one for one in self._spread() if one.digest == manifest.digest), None)
        missing = [number for number, held in enumerate(one.holders) if 0 not in held] if one else []
        for number in world.broadcast_value(missing, list[int]):
            holders = world.broadcast_value(one.holders[number] if one else (), tuple[int, ...])
            if not holders:
                raise CorruptError(f"no node has {shards.name(number)} of {manifest.name}")
            self._bring(path / shards.name(number), manifest, number, source=holders[0])

    def _bring(self, path: Path, manifest: Manifest, number: int, *, source: int) -> None:
        world, expected = self.world, manifest.shards[number]
        sending, part = Broadcaster(world), path.with_name(f"{snapshot.SCRATCH}{path.name}")

        def read(start: int, stop: int) -> bytearray:
            with path.open("rb") as file:
                file.seek(start)
                return bytearray(file.read(stop - start))

        def begin() -> None:
            if world.is_main:
                part.touch()

        world.attempt(begin, OSError)
        for start in range(0, expected.size, BLOCK):
            stop = min(start + BLOCK, expected.size)
            content = sending.broadcast(stop - start, lambda: read(start, stop), source=source)  # noqa: B023
            if world.is_main:
                files.write_at(part, [(start, content.cpu().numpy().tobytes())])
            world.heartbeat.beat(Phase.SAVING)

        def check() -> None:
            if world.is_main:
                ShardFile(part, expected).verify()
                part.rename(path)

        world.attempt(check, *FAILURES)

    def _spread(self) -> list[Spread]:
        """What the nodes hold, by the ranks that speak for them; on rank 0."""

        def scan() -> list[Held]:
            return retry_io(Holdings(self.folder).scan, self.folder, self.world.warn) if self.leads else []

        held = self.world.attempt(scan, StorageUnavailableError)
        return spread(dict(enumerate(self.world.gather(held, list[Held]))))

    def _next(self) -> tuple[Spread, Manifest] | None:
        """The next snapshot to try, with its manifest."""
        world = self.world
        while True:
            known = self._spread()
            found = world.broadcast_value(
                [one for one in complete(known) if one.key not in self._left_out][:1], list[Spread]
            )
            self._say_incomplete(known, found)
            if not found:
                self._check_from_scratch(known)
                return None
            one = found[0]
            source, path = one.holders[0][0], self.folder / one.name
            manifest = world.attempt(
                lambda: snapshot.read_manifest(path) if world.rank == source else None,  # noqa: B023
                *FAILURES,
            )
            manifest = world.broadcast_value(manifest, Manifest, source=source)

            def judge() -> bool:
                return self.candidates is None or self.candidates.judge(manifest)  # noqa: B023

            if world.broadcast_value(world.attempt(judge, SnapshotError), bool):
                return one, manifest
            self._left_out.add(one.key)

    def _say_incomplete(self, known: Sequence[Spread], found: Sequence[Spread]) -> None:
        for one in known:
            newer = not found or one.key > found[0].key
            if newer and one.missing and one.key not in self._said:
                self._said.add(one.key)
                lost = ", ".join(map(str, one.missing[:5])) + (", ..." if len(one.missing) > 5 else "")  # noqa: PLR2004
                parts = f"{len(one.missing)} of its {len(one.holders)} parts"
                self.not_whole = self.not_whole or f"no node that is left has {parts} of step {one.step}"
                self.world.print(
                    f"{one.name} is not whole: of its {len(one.holders)} shards no node that is here has {lost}; "
                    + (f"going on from {found[0].name}" if found else "and there is no other snapshot")
                )

    def _check_from_scratch(self, known: Sequence[Spread]) -> None:
        found = copies_status.read(self.folder, self.world.env.run_id)
        complete = self.world.gather(bool(found and found.copied_step is not None) if self.leads else None, bool | None)
        away = self.world.env.job.max_nodes - sum(one is not None for one in complete)

        def check() -> None:
            if self.candidates:
                incomplete = [one.name for one in known if one.missing]
                self.candidates.check_spread(incomplete, was_complete=any(complete), away=away)

        self.world.attempt(check, SnapshotError, StorageUnavailableError)

    def _read(self, reader: StateReader, one: Spread, manifest: Manifest) -> Extras:
        """Set the state; each shard is read by the rank that has written it, if that is here, else by a holder."""
        world, path = self.world, self.folder / manifest.name
        holders = [number if number in held else held[0] for number, held in enumerate(one.holders)]

        def open_mine() -> dict[int, ShardFile]:
            mine = [number for number, holder in enumerate(holders) if holder == world.rank]
            return {number: ShardFile(path / shards.name(number), manifest.shards[number]) for number in mine}

        opened = world.attempt(lambda: retry_io(open_mine, path, world.warn), *FAILURES)
        tails: dict[int, Tail] = {}
        for held in world.broadcast_value(
            world.gather({number: shard.tail for number, shard in opened.items()}, dict[int, Tail]),
            list[dict[int, Tail]],
        ):
            tails |= held
        return reader.read(
            [tails[number] for number in range(len(holders))],
            lambda number, start, stop: retry_io(lambda: opened[number].read(start, stop), path, world.warn),
            holders=holders,
        )

    def _set_aside(self, one: Spread, manifest: Manifest, problem: CorruptError | IncompatibleError) -> None:
        """Find what is damaged in all folders; if nothing is, the snapshot as a whole is not used."""
        damaged = self._quarantine(manifest) if self.leads and isinstance(problem, CorruptError) else 0
        if not sum(count for (count,) in self.world.all_gather([damaged])):
            self._left_out.add(one.key)

            def reject() -> None:
                if self.candidates:
                    self.candidates.reject(manifest, problem)

            self.world.attempt(reject, SnapshotError)

    def _quarantine(self, manifest: Manifest) -> int:
        """Rename the damaged shards of a snapshot in this node's folder; returns how many."""
        path, found = self.folder / manifest.name, 0
        with suppress(OSError):
            for number in of_manifest(path, manifest).numbers:
                file = path / shards.name(number)
                try:
                    ShardFile(file, manifest.shards[number]).verify()
                except CorruptError as error:
                    file.rename(file.with_name(f"{QUARANTINE}{file.name}"))
                    found += 1
                    self.world.warn(f"{manifest.name} on this node: {error}; another node's copy is used")
                self.world.heartbeat.beat(Phase.RESTORING)
        return found
