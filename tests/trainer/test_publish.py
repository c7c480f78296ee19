"""The report: every node's seat, the round, and the progress of rank 0."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.trainer.nodes import free_port
from trainer.env import node_env
from trainer.publish import FileSink, Reporter, sink_of


def reporter(folder: Path, index: int) -> Reporter:
    node = node_env({"KIT_NODE_INDEX": str(index), "KIT_POD": f"job-{index}", "PET_RDZV_ID": "run-1"})
    return Reporter(node, sink=FileSink(folder / "report.json"), progress_file=folder / f"progress-{index}.json")


def connect(port: int, *, host: bool = False) -> dist.TCPStore:
    return dist.TCPStore(
        "127.0.0.1", port, is_master=host, wait_for_workers=False, timeout=timedelta(seconds=30), use_libuv=False
    )


def meet(port: int, prefix: str, order: list[Reporter]) -> list[int]:
    """A round in which the reporters have the group ranks of their places."""
    rounds = [0] * len(order)

    def begin(rank: int) -> None:
        rounds[rank] = order[rank].begin(
            dist.PrefixStore(prefix, connect(port)),
            group_rank=rank,
            group_size=len(order),
            ranks=(2 * rank, 2 * rank + 1),
            world=2 * len(order),
        )

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(len(order))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rounds


def test_seats_follow_the_group_rank_and_rounds_only_grow(tmp_path: Path) -> None:
    first, second = reporter(tmp_path, 0), reporter(tmp_path, 1)
    port = free_port()
    store = connect(port, host=True)
    assert meet(port, "a", [first, second]) == [1, 1]
    (tmp_path / "progress-0.json").write_text('{"step": 5}')
    first.stop()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["progress"] == {"step": 5}
    assert report["nodes"]["1"] == {"pod": "job-1", "host": "localhost", "group_rank": 1, "ranks": [2, 3]}

    # Node 0 is started anew and knows of no round; node 1 leads now.
    (tmp_path / "progress-1.json").write_text('{"step": 1}')  # of a time when it led before
    newcomer = reporter(tmp_path, 0)
    assert meet(port, "b", [second, newcomer]) == [2, 2]
    second.stop()
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["run"], report["round"], report["world_size"]) == ("run-1", 2, 4)
    assert report["nodes"]["0"]["ranks"] == [2, 3]
    assert report["progress"] == {}
    assert report["updated"].endswith("Z")
    assert report["forming"] is False
    del store


def test_a_group_that_is_no_more_is_told_until_the_next_one_formed(tmp_path: Path) -> None:
    leader = reporter(tmp_path, 0)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [leader])
    leader.dissolve()
    leader.stop()
    broken = json.loads((tmp_path / "report.json").read_text())
    assert broken["forming"] is True
    meet(port, "b", [leader])
    leader.stop()
    mended = json.loads((tmp_path / "report.json").read_text())
    assert mended["forming"] is False
    assert mended["formed"] > broken["formed"]
    del store


def test_the_file_is_replaced_never_half_written(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "report.json")
    sink.put({"round": 1})
    with (tmp_path / "report.json").open() as reader:
        sink.put({"round": 2})
        assert json.load(reader) == {"round": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("address", [None, "", "file:", "pigeon:home"])
def test_without_a_known_address_nothing_is_told(address: str | None) -> None:
    assert sink_of(address) is None
