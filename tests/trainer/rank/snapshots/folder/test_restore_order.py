"""In-memory copies and snapshots on disk: after any loss, nothing published is undone, and each step counts once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.snapshots.files.shards import Shard
from kittrain.rank.snapshots.folder.ledger import Ledger, audit, extend
from kittrain.rank.snapshots.folder.restore_order import MemoryShard, complete_copies, in_restore_order
from kittrain.rank.snapshots.folder.snapshot import Manifest, Parent
from kittrain.rank.snapshots.proof import prove
from kittrain.rank.world.order import Cursor, Order
from tests.trainer import runs, saved

ORDER = saved.ORDER
SHARD = (Shard(size=1, data=1, sha256=""),)
CURSORS = [Cursor(), *(ORDER.after(span) for span in ORDER.spans(Cursor(), 100))]


def takers(ledger: Ledger) -> list[int]:
    """The generation of each step."""
    return [entry.generation for entry in ledger for _ in range(entry.first_step, entry.last_step + 1)]


class Run:
    """A simulated run; ``taken`` records the generation of each step that it took."""

    def __init__(self) -> None:
        self.generation, self.step = 1, 0
        self.taken: list[int] = []
        self.truth: dict[str, list[int]] = {}  # ``taken`` at each save, by name
        self.snapshots: list[Manifest] = []
        self.copies: list[Manifest] = []
        self.away: list[Manifest] = []
        self.pending: int | None = None
        self.base = 0
        self.parent: Parent | None = None
        self.ledger: Ledger = ()

    def train(self, steps: int) -> None:
        self.step += steps
        self.taken += [self.generation] * steps

    def manifest(self, step: int) -> Manifest:
        start, stop = CURSORS[self.base], CURSORS[step]
        ledger = extend(self.ledger, ORDER, self.generation, start, stop, world_size=1)
        facts = {"cursor": stop, "ledger": ledger, "parent": self.parent, "world_size": 1}
        made = saved.manifest(0, self.generation, step=step, shards=SHARD, **facts)
        self.truth[made.name] = self.taken[:step]
        return made

    def begin(self) -> None:
        self.pending = self.step

    def publish(self) -> None:
        if self.pending is not None and self.pending > self.base:
            made = self.manifest(self.pending)
            self.snapshots.append(made)
            self.base, self.parent, self.ledger = made.step, runs.parent(made), made.ledger
        self.pending = None

    def copy(self) -> None:
        if self.step > self.base:
            self.copies = [*self.copies[-1:], self.manifest(self.step)]

    def crash(self, lost: Sequence[bool], damaged: int) -> None:
        """Some nodes with their copies are away until the next crash, and the newest snapshots are damaged."""
        gone = [one for one, away in zip(self.copies, lost, strict=False) if away]
        here = [one for one in (*self.copies, *self.away) if one not in gone]
        self.copies, self.away = [one for one in self.copies if one not in gone], gone
        self.snapshots = self.snapshots[: len(self.snapshots) - damaged]
        newest = sorted(self.snapshots, key=lambda one: (one.generation, one.step), reverse=True)
        copies = complete_copies([[MemoryShard(manifest=one, number=0) for one in here]])
        found = next(in_restore_order(newest, copies), None)
        manifest, parent = (found.manifest, found.parent) if found else (None, None)
        assert parent == (newest[0] if newest else None)
        self.check(manifest, parent, here)
        self.ledger, self.parent = manifest.ledger if manifest else (), runs.parent(parent) if parent else None
        self.step = self.base = manifest.step if manifest else 0
        self.taken = takers(self.ledger)
        self.generation, self.pending = self.generation + 1, None

    def check(self, found: Manifest | None, published: Manifest | None, copies: list[Manifest]) -> None:
        if found:
            assert audit(found.ledger, ORDER) == CURSORS[found.step]
            assert takers(found.ledger) == self.truth[found.name]
        if published:
            assert found
            assert takers(found.ledger)[: published.step] == self.truth[published.name]
        for one in copies:  # no usable copy that is further along was ignored
            before = self.truth[published.name] if published else []
            if self.truth[one.name][: len(before)] == before and one.step > len(before):
                assert found
                assert (found.generation, found.step) >= (one.generation, one.step)


PHASE = st.tuples(
    st.integers(0, 4),  # steps,
    st.sampled_from(["begin", "publish", "copy", "begin publish", "copy copy", ""]),  # and what is saved after them
)
CRASH = st.tuples(st.lists(st.booleans(), min_size=2, max_size=2), st.sampled_from([0, 0, 0, 1, 2]))


@given(st.lists(st.tuples(st.lists(PHASE, max_size=8), CRASH), min_size=1, max_size=6))
def test_the_history_is_exact_after_any_loss(
    starts: list[tuple[list[tuple[int, str]], tuple[list[bool], int]]],
) -> None:
    run = Run()
    for phases, (lost, damaged) in starts:
        for steps, saved_then in phases:
            run.train(steps)
            for what in saved_then.split():
                getattr(run, what)()
        run.crash(lost, damaged)
    manifests = {one.name: one for one in run.snapshots}
    assert not [proof.broken for proof in (prove(one, manifests) for one in run.snapshots) if proof.broken]


def test_an_older_branch_does_not_overtake_what_was_published() -> None:
    run = Run()
    run.train(2)
    run.begin()
    run.publish()
    run.train(6)
    run.copy()
    abandoned = run.copies[0]
    run.crash([True], 0)  # the node that has it is away, and the run resumes from the snapshot
    run.train(1)
    run.begin()
    run.publish()
    assert abandoned.step > run.step
    run.crash([], 0)  # it is back
    assert (run.step, takers(run.ledger)) == (3, [1, 1, 2])


@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=4), st.integers(0, 3))
def test_a_copy_is_complete_if_each_shard_is_held_by_some_rank(holders: list[set[int]], other: int) -> None:
    held: list[list[MemoryShard]] = [[] for _ in range(4)]
    for number, ranks in enumerate(holders):
        for rank in ranks:
            shard = Shard(size=1, data=1, sha256=str(number))
            made = saved.manifest(3, world_size=len(holders), shards=(shard,), created=float(rank))
            held[rank].append(MemoryShard(manifest=made, number=number))
    held[other].append(MemoryShard(manifest=saved.manifest(5, world_size=1, shards=SHARD), number=0))
    found = complete_copies(held)
    assert [point.manifest.step for point in found] == ([5, 3] if all(holders) else [5])
    for point in found[1:]:
        assert [one.sha256 for one in point.manifest.shards] == [str(number) for number in range(len(holders))]
        assert list(point.holders) == [
            number if number in ranks else min(ranks) for number, ranks in enumerate(holders)
        ]


def test_shards_of_different_histories_are_not_mixed() -> None:
    ours = saved.manifest(3, generation=2, shards=SHARD)
    other = saved.manifest(
        3,
        generation=2,
        shards=SHARD,
        ledger=extend((), Order(samples=9, batch=3), 2, Cursor(), Cursor(0, 9), world_size=2),
    )
    assert not complete_copies([[MemoryShard(manifest=ours, number=0)], [MemoryShard(manifest=other, number=1)]])
    assert complete_copies([[MemoryShard(manifest=ours, number=0)], [MemoryShard(manifest=ours, number=1)]])
