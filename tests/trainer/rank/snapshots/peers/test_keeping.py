"""Processes that keep copies, as threads here: they fetch, refuse what is damaged, and prune."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.folder import copies_status, snapshot
from kittrain.rank.snapshots.folder.copies_status import CopiesStatus
from kittrain.rank.snapshots.folder.held import Holdings
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, Manifest
from kittrain.rank.snapshots.peers.directory import Plan, Task
from kittrain.rank.snapshots.peers.fetching import Fetcher, connect
from kittrain.rank.snapshots.peers.keeping import Keeper
from kittrain.rank.snapshots.peers.messages import Answer, Request, Round
from kittrain.rank.snapshots.peers.placement import Place
from kittrain.rank.snapshots.peers.serving import Server
from kittrain.rank.snapshots.peers.wire import PeerLostError
from tests.trainer.nodes import TIMEOUT
from tests.trainer.runs import flip
from tests.trainer.saved import archive, continued, manifest, save

KEY = b"k" * 32


class Refusing(Server):
    """A server that has no file, once it is told."""

    refuses = False

    def _find(self, request: Request) -> tuple[Path, int | None]:
        return (self._folder, None) if self.refuses else super()._find(request)


class Node:
    """A node's folder and its process, as threads that end with the test's process."""

    def __init__(self, folder: Path, index: int, *, keep: int = 3, whole: bool = False, stays: bool = False) -> None:
        self.folder, self.index = folder / f"node-{index}", index
        self.folder.mkdir(exist_ok=True)
        self.log: list[str] = []
        listener = socket.create_server(("127.0.0.1", 0))
        self.place = Place(node=index, host=f"host-{index}", address=f"127.0.0.1:{listener.getsockname()[1]}")
        self.server = Refusing(listener, KEY, self.folder, self.log.append)
        self.keeper = Keeper(
            node=index,
            folder=self.folder,
            server=self.server,
            open=partial(connect, key=KEY),
            run="run-1",
            archive=archive(self.folder, self.log.append, keep=keep),
            whole=whole,
            stays=stays,
            log=self.log.append,
        )
        self.server.start()
        threading.Thread(target=self.keeper.keep, daemon=True).start()

    @property
    def status(self) -> CopiesStatus | None:
        return copies_status.read(self.folder, "run-1")

    def held(self) -> dict[str, tuple[int, ...]]:
        return {one.name: one.numbers for one in Holdings(self.folder).scan()}


def begin(nodes: Sequence[Node], number: int = 1) -> None:
    for node in nodes:
        node.keeper.begin(Round(number=number, places=tuple(one.place for one in nodes)))


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def publish(nodes: Sequence[Node], whole: Path, described: Manifest, *, of: Sequence[int] = (0, 1)) -> Manifest:
    """Give each of the first nodes the shard that its rank has written."""
    whole.mkdir(exist_ok=True)
    saved = save(whole, described)
    for number in of:
        path, scratch = nodes[number].folder / saved.name, nodes[number].folder / f".tmp-{saved.name}"
        scratch.mkdir()
        for name in (MANIFEST, shards.name(number)):
            shutil.copy(whole / saved.name / name, scratch / name)
        scratch.rename(path)
    return saved


@contextmanager
def running(folder: Path, count: int, *, keep: int = 3) -> Iterator[list[Node]]:
    yield [Node(folder, index, keep=keep) for index in range(count)]


def copied(nodes: Sequence[Node], step: int) -> bool:
    return all(node.status is not None and node.status.copied_step == step for node in nodes)


def test_each_shard_is_copied_and_all_nodes_know(tmp_path: Path) -> None:
    with running(tmp_path, 2) as nodes:
        begin(nodes)
        saved = publish(nodes, tmp_path / "whole", manifest())
        wait(lambda: copied(nodes, saved.step))
        assert [node.held() for node in nodes] == [{saved.name: (0, 1)}] * 2
        for node in nodes:
            assert snapshot.verify(node.folder / saved.name).digest == saved.digest
            assert node.status == CopiesStatus(
                run="run-1",
                step=3,
                have=2,
                wanted=2,
                copied_step=3,
                copied_digest=saved.digest,
                sent=node.status.sent if node.status else 0,
            )
        assert sum(node.server.sent for node in nodes) == sum(one.size for one in saved.shards)


def test_a_node_that_had_nothing_gets_its_part_with_the_manifest(tmp_path: Path) -> None:
    with running(tmp_path, 3) as nodes:
        saved = publish(nodes, tmp_path / "whole", manifest(), of=(0, 1))
        begin(nodes)
        wait(lambda: copied(nodes, saved.step))
        assert [node.held()[saved.name] for node in nodes] == [(0,), (0, 1), (1,)]


def test_a_flipped_bit_is_not_copied_and_the_next_holder_is_asked(tmp_path: Path) -> None:
    with running(tmp_path, 3) as nodes:
        saved = publish(nodes, tmp_path / "whole", manifest(), of=(0, 1))
        shutil.copytree(nodes[0].folder / saved.name, nodes[2].folder / saved.name)
        flip(nodes[0].folder / saved.name / shards.name(0))
        sources = (nodes[0].place.address, nodes[2].place.address)
        task = Task(number=0, sources=sources)
        plan = Plan(round=1, name=saved.name, digest=saved.digest, tasks=(task,))
        log: list[str] = []
        Fetcher(nodes[1].folder, 1, partial(connect, key=KEY), log.append).fetch(plan)
        assert nodes[1].held() == {saved.name: (0, 1)}
        snapshot.verify(nodes[1].folder / saved.name)
        assert len(log) == 1
        assert f"{saved.name} at {sources[0]} is damaged and not copied: " in log[0]


def test_what_is_damaged_at_its_only_holder_is_no_copy_and_is_said(tmp_path: Path) -> None:
    with running(tmp_path, 2) as nodes:
        saved = publish(nodes, tmp_path / "whole", manifest())
        flip(nodes[0].folder / saved.name / shards.name(0))
        begin(nodes)
        wait(lambda: bool(nodes[1].status and nodes[1].status.warning))
        assert nodes[1].held() == {saved.name: (1,)}
        assert not list(nodes[1].folder.glob("*/.tmp-*"))
        assert nodes[1].status
        assert nodes[1].status.copied_step is None


def test_expired_snapshots_go_once_a_newer_one_has_its_copies_and_not_before(tmp_path: Path) -> None:
    with running(tmp_path, 2, keep=1) as nodes:
        begin(nodes)
        first = publish(nodes, tmp_path / "whole", manifest(1))
        wait(lambda: copied(nodes, 1))
        later = manifest(2, generation=2, ledger=continued(first, 2, generation=2))
        second = publish(nodes, tmp_path / "whole", later, of=(0,))
        wait(lambda: second.name in nodes[0].held())
        time.sleep(0.3)  # some looks
        assert first.name in nodes[0].held()  # the newer one is on one node only
        publish(nodes, tmp_path / "again", later, of=())
        scratch = nodes[1].folder / second.name
        scratch.mkdir()
        for name in (shards.name(1), MANIFEST):
            shutil.copy(tmp_path / "whole" / second.name / name, scratch / name)
        wait(lambda: copied(nodes, 2) and all(list(node.held()) == [second.name] for node in nodes))


def test_copies_that_do_not_keep_up_leave_the_safe_one_and_do_not_fill_the_disk(tmp_path: Path) -> None:
    with running(tmp_path, 2, keep=2) as nodes:
        begin(nodes)
        chain = [publish(nodes, tmp_path / "whole", manifest(1))]
        wait(lambda: copied(nodes, 1))
        for node in nodes:
            node.server.refuses = True  # no file is to be had
        for step in range(2, 7):
            later = manifest(step, ledger=continued(chain[-1], step, generation=1))
            chain.append(publish(nodes, tmp_path / "whole", later))
        wait(lambda: all(chain[5].name in node.held() and len(node.held()) <= 4 for node in nodes))  # of six
        assert all({chain[0].name, chain[5].name} <= node.held().keys() for node in nodes)
        wait(lambda: all(node.status and node.status.copied_step == 1 and node.status.warning for node in nodes))


def test_a_lost_node_is_replaced_by_one_without_anything(tmp_path: Path) -> None:
    with running(tmp_path, 3) as nodes:
        begin(nodes)
        saved = publish(nodes, tmp_path / "whole", manifest(), of=(0, 1))
        wait(lambda: copied(nodes, saved.step))
        shutil.rmtree(nodes[1].folder)
        fresh = Node(tmp_path, 1)
        after = [nodes[0], fresh, nodes[2]]
        begin(after, number=2)
        wait(lambda: len([node for node in after if 1 in node.held().get(saved.name, ())]) > 1)
        wait(lambda: copied(after, saved.step))


def test_only_files_of_snapshots_are_served(tmp_path: Path) -> None:
    with running(tmp_path, 2) as nodes:
        saved = publish(nodes, tmp_path / "whole", manifest())
        (nodes[0].folder / saved.name / "other").write_text("mine")
        (nodes[0].folder.parent / "secret").write_text("mine")
        channel = connect(nodes[0].place.address, KEY)
        for name, file in (
            (saved.name, "other"),
            (saved.name, "../../secret"),
            ("..", "secret"),
            (saved.name, shards.name(1)),
            (saved.name, "/etc/passwd"),
        ):
            channel.send(Request(node=1, name=name, digest=saved.digest, file=file))
            assert channel.receive(Answer).size is None
        channel.send(Request(node=1, name=saved.name, digest="another", file=MANIFEST))
        assert channel.receive(Answer).size is None


def test_without_the_secret_nothing_is_served(tmp_path: Path) -> None:
    with running(tmp_path, 1) as (node,):
        with pytest.raises(PeerLostError):
            connect(node.place.address, b"another")
        wait(lambda: bool(node.log))
        assert "did not prove" in node.log[0]


def test_one_that_begins_a_round_before_the_directory_waits_for_it(tmp_path: Path) -> None:
    with running(tmp_path, 2) as nodes:
        saved = publish(nodes, tmp_path / "whole", manifest())
        places = tuple(one.place for one in nodes)
        nodes[1].keeper.begin(Round(number=7, places=places))
        time.sleep(0.2)
        assert nodes[1].status is None
        nodes[0].keeper.begin(Round(number=7, places=places))
        wait(lambda: copied(nodes, saved.step))


def settled(node: Node) -> bool:
    return node.status is not None and node.status.settled == os.getpid()


def test_a_node_is_needed_until_the_one_that_mirrors_has_all_of_the_newest(tmp_path: Path) -> None:
    nodes = [Node(tmp_path, index, whole=True) for index in range(2)]
    nodes[1].server.refuses = True
    begin(nodes)
    saved = publish(nodes, tmp_path / "whole", manifest())
    for node in nodes:
        node.keeper.finish()
    wait(lambda: bool(nodes[0].log))
    assert not settled(nodes[1]), "what it has is nowhere else"
    nodes[1].server.refuses = False
    wait(lambda: all(map(settled, nodes)))
    assert nodes[0].held()[saved.name] == (0, 1)


def test_a_node_is_needed_no_more_once_the_others_are_in_a_later_round(tmp_path: Path) -> None:
    nodes = [Node(tmp_path, index, whole=True) for index in range(2)]
    begin(nodes)
    nodes[0].server.refuses = nodes[1].server.refuses = True
    publish(nodes, tmp_path / "whole", manifest())
    wait(lambda: nodes[1].status is not None)
    begin(nodes[:1], 2)
    nodes[1].keeper.finish()
    wait(lambda: settled(nodes[1]))


def leads(node: Node) -> bool:
    return node.status is not None and node.status.leads == os.getpid()


def released(node: Node) -> bool:
    return node.status is not None and node.status.released == os.getpid()


def cut(node: Node, address: str) -> None:
    """It is lost: nobody is served any more, and it asks nobody."""
    node.place = Place(node=node.index, host=node.place.host, address=address)


def test_nodes_stay_until_what_is_nowhere_else_is_uploaded(tmp_path: Path) -> None:
    nodes = [Node(tmp_path, index, whole=True, stays=True) for index in range(4)]
    begin(nodes)
    saved = publish(nodes, tmp_path / "whole", manifest())
    for node in nodes[1:]:
        node.keeper.finish("job")
    wait(lambda: copied(nodes, saved.step))
    time.sleep(0.5)  # some looks
    assert not any(map(settled, nodes[1:])), "the one that uploads has yet to end"
    assert all(node.status and node.status.stays == os.getpid() for node in nodes[1:])
    nodes[0].keeper.finish("job")
    wait(lambda: [node.held().get(saved.name) for node in nodes] == [(0, 1)] * 3 + [None] and settled(nodes[3]))
    wait(lambda: settled(nodes[0]))
    assert not any(map(settled, nodes[1:3]))
    nodes[0].keeper.release()
    wait(lambda: all(map(settled, nodes)) and released(nodes[0]))
    assert not any(node.status and node.status.stays for node in nodes), "nothing keeps them any more"


@pytest.mark.parametrize("frozen", [False, True])
def test_the_next_node_uploads_if_those_before_it_are_lost(tmp_path: Path, *, frozen: bool) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # connections are made, and never answered
    (folder := tmp_path / str(frozen)).mkdir()  # not where the threads of the other case write
    nodes = [Node(folder, index, whole=True, stays=True) for index in range(3)]
    saved = publish(nodes, folder / "whole", manifest())
    nodes[0].server.refuses = True
    cut(nodes[0], f"127.0.0.1:{silent.getsockname()[1] if frozen else 1}")  # as the others are about to end
    begin(nodes)
    for node in nodes[1:]:
        node.keeper.finish("job")
    wait(lambda: leads(nodes[1]))
    assert not settled(nodes[1]), "nobody has its other shard"
    publish([nodes[2]], folder / "again", manifest(), of=(0,))
    wait(lambda: settled(nodes[1]))
    assert nodes[1].held()[saved.name] == (0, 1)
    assert not leads(nodes[2])
    assert not settled(nodes[2])
    nodes[1].keeper.release()
    wait(lambda: settled(nodes[2]) and released(nodes[1]))
