"""What each node is told: from what all hold now, for the newest snapshot that is complete."""

from __future__ import annotations

from kittrain.rank.snapshots.folder.held import Held, SnapshotId
from kittrain.rank.snapshots.peers.directory import Directory, Task
from kittrain.rank.snapshots.peers.placement import Place

RING = [Place(node=node, host=f"h{node}", address=f"a:{node}") for node in range(3)]


def held(step: int, *numbers: int, generation: int = 1, digest: str = "d", shards: int = 3) -> Held:
    return Held(step=step, generation=generation, digest=digest, shards=shards, numbers=numbers)


def test_each_node_fetches_its_neighbours_shard_and_then_it_counts_as_copied() -> None:
    directory = Directory(round=1, ring=RING)
    directory.tell(0, [held(10, 0)])
    directory.tell(1, [held(10, 1)])
    plan = directory.tell(2, [held(10, 2)])
    assert (plan.step, plan.have, plan.wanted, plan.copied) == (10, 1, 2, None)
    assert plan.tasks == (Task(number=1, sources=("a:1",)),)
    directory.tell(0, [held(10, 0, 2)])
    directory.tell(1, [held(10, 1, 0)])
    plan = directory.tell(2, [held(10, 2, 1)])
    assert (plan.have, plan.tasks) == (2, ())
    assert plan.copied == SnapshotId(step=10, generation=1, digest="d")


def test_a_snapshot_that_not_all_nodes_have_published_yet_is_none() -> None:
    directory = Directory(round=1, ring=RING)
    directory.tell(0, [held(20, 0), held(10, 0, 2)])
    directory.tell(1, [held(10, 1, 0)])
    plan = directory.tell(2, [held(20, 2), held(10, 2, 1)])
    assert (plan.step, plan.have, plan.tasks) == (10, 2, ())


def test_what_is_copied_stays_until_a_newer_one_is() -> None:
    directory = Directory(round=1, ring=RING)
    directory.tell(0, [held(20, 0), held(10, 0, 2)])
    directory.tell(1, [held(20, 1), held(10, 1, 0)])
    plan = directory.tell(2, [held(20, 2), held(10, 2, 1)])
    assert (plan.step, plan.have) == (20, 1)
    assert plan.copied == SnapshotId(step=10, generation=1, digest="d")


def test_a_later_step_of_an_older_generation_is_not_the_newest() -> None:
    directory = Directory(round=1, ring=RING)
    stale = held(90, 0, 1, 2, generation=1)
    directory.tell(0, [stale, held(20, 0, 1, 2, generation=2)])
    directory.tell(1, [stale])
    assert directory.tell(2, [stale]).step == 20


def test_two_writings_of_the_same_step_are_not_mixed() -> None:
    directory = Directory(round=1, ring=RING)
    directory.tell(0, [held(10, 0, digest="old")])
    directory.tell(1, [held(10, 1, digest="new")])
    assert directory.tell(2, [held(10, 2, digest="new")]).step is None


def test_a_node_that_has_lost_its_folder_gets_a_part_again() -> None:
    directory = Directory(round=2, ring=RING)
    directory.tell(0, [held(10, 0, 2)])
    directory.tell(1, [])
    assert directory.tell(2, [held(10, 2, 1)]).tasks == ()
    assert directory.tell(1, []).tasks == (Task(number=0, sources=("a:0",)),)
    assert directory.tell(0, [held(10, 0, 2)]).tasks == (Task(number=1, sources=("a:2",)),)  # next to the last holder


def test_a_mirrors_node_holds_all_shards() -> None:
    directory = Directory(round=1, ring=RING, whole=0)
    directory.tell(1, [held(10, 1, 0)])
    directory.tell(2, [held(10, 2, 1)])
    assert [one.number for one in directory.tell(0, [held(10, 0, 2)]).tasks] == [1]


def test_nothing_is_decided_before_all_have_told() -> None:
    directory = Directory(round=1, ring=RING)
    assert directory.tell(0, [held(10, 0, 1, 2)]).tasks == ()
    assert directory.tell(0, [held(10, 0, 1, 2)]).have == 0


def test_a_node_of_another_round_is_not_counted() -> None:
    directory = Directory(round=1, ring=RING[:2])
    directory.tell(0, [held(10, 0)])
    assert directory.tell(2, [held(10, 1, 2)]).step is None


def test_what_lacks_shards_is_given_up_once_a_newer_one_is_safe() -> None:
    directory = Directory(round=1, ring=RING[:2])
    directory.tell(0, [held(20, 0, 1, shards=2), held(10, 0, shards=2)])
    plan = directory.tell(1, [held(20, 0, 1, shards=2), held(30, 1, shards=2)])
    assert plan.lost == (("step-00000010-g0001", "d"),)  # the newer one is being published


def test_a_node_that_cannot_write_does_not_fill_the_others_disks() -> None:
    directory = Directory(round=1, ring=RING[:2])
    directory.tell(0, [held(step, 0, shards=2) for step in (50, 40, 30, 20, 10)])
    plan = directory.tell(1, [])
    assert [name for name, _ in plan.lost] == ["step-00000020-g0001", "step-00000010-g0001"]


def test_copies_that_do_not_keep_up_are_told() -> None:
    directory = Directory(round=1, ring=RING[:2])
    for steps in ([30, 20, 10], [40, 30, 20, 10]):
        directory.tell(0, [held(step, 0, shards=2) for step in steps])
        plan = directory.tell(1, [held(step, 1, shards=2) for step in steps])
        assert (plan.copied, plan.behind) == (None, len(steps) > 3)


ALL = {0: (0, 2), 1: (1, 0), 2: (2, 1), 3: ()}


def ending(*nodes: int, lost: tuple[int, ...] = ()) -> Directory:
    """Of four nodes, whose training has ended; the first of them uploads."""
    ring = [Place(node=node, host=f"h{node}", address=f"a:{node}") for node in nodes]
    directory = Directory(round=1, ring=ring, whole=nodes[0], ending=0.0)
    for node in nodes:
        if node not in lost:
            directory.tell(node, [held(10, *ALL[node])], now=1.0, ends="job")
    return directory


def test_those_who_may_have_to_upload_stay_until_it_is_done_and_the_others_until_they_have_all() -> None:
    directory = ending(0, 1, 2, 3)
    plans = [directory.tell(node, [held(10, *ALL[node])], now=1.0, ends="job") for node in range(4)]
    assert [plan.stays for plan in plans] == [False, True, True, False]
    assert [[task.number for task in plan.tasks] for plan in plans] == [[1], [2], [0], []]
    assert not plans[3].gathered, "two nodes do not have all yet"
    for node in (0, 1, 2):
        directory.tell(node, [held(10, 0, 1, 2)], now=1.0, ends="job")
    assert directory.tell(3, [], now=1.0, ends="job").gathered
    assert directory.waits(1.0)
    directory.released = True
    assert not any(directory.tell(node, [held(10, 0, 1, 2)], now=1.0, ends="job").stays for node in (1, 2))
    assert not directory.waits(1.0)


def test_nobody_waits_for_a_node_that_is_lost_at_the_end() -> None:
    directory = ending(0, 1, 2, lost=(1,))
    assert directory.tell(2, [held(10, 2, 1)], now=2.0, ends="job").tasks == (), "it may still come"
    directory.tell(0, [held(10, 0, 2)], now=4.0, ends="job")
    assert [one.number for one in directory.tell(2, [held(10, 2, 1)], now=4.0, ends="job").tasks] == [0]
    directory.released = True
    directory.tell(2, [held(10, 0, 1, 2)], now=4.0, ends="job")
    assert not directory.waits(4.0)


def test_a_node_whose_job_has_ended_waits_for_the_one_that_uploads_to_end_too() -> None:
    directory = Directory(round=1, ring=RING[:2], whole=0)
    directory.tell(0, [held(10, 0, 1, shards=2)])
    assert directory.tell(1, [held(10, 1, shards=2)], ends="job").stays
    assert not directory.tell(1, [held(10, 1, shards=2)], ends="node").stays, "the others go on without it"
