"""The process that keeps copies: two of them, started as agents do, and what becomes of one that is killed."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kitjob.job_keys import JobKeys
from kitjob.report import CopiesReport
from kitjob.sections import Snapshots
from kittrain.agent.processes import copies
from kittrain.agent.processes.copies import CopiesProcess
from kittrain.job.env import NodeEnv
from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.folder import copies_status
from tests.trainer.nodes import TIMEOUT
from tests.trainer.saved import manifest, save

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CopiesProcess]]:
    """Two, each with its shard of one snapshot."""
    monkeypatch.setenv("KIT_SNAPSHOTS_STORAGE", "perNode")
    job = JobKeys(snapshots=Snapshots(storage="perNode"))
    saved = save(tmp_path, manifest())
    with ExitStack() as stack:
        found = []
        for index in (0, 1):
            folder = tmp_path / f"node-{index}"
            shutil.copytree(tmp_path / saved.name, folder / saved.name)
            (folder / saved.name / shards.name(1 - index)).unlink()
            monkeypatch.setenv("KIT_SNAPSHOT_DIR", str(folder))
            monkeypatch.setenv("KIT_NODE_INDEX", str(index))
            node = NodeEnv(job=job, run_id="run-1", node_index=index, snapshot_dir=folder)
            process = CopiesProcess(node, b"a secret of sixteen", lambda _: None)
            stack.callback(process.stop)
            process.listen("127.0.0.1")
            found.append(process)
        yield found


def begin(nodes: list[CopiesProcess], number: int) -> None:
    places: list[Mapping[str, Any]] = [
        {"node": index, "host": "here", "address": one.address} for index, one in enumerate(nodes)
    ]
    for one in nodes:
        one.begin(number, places)


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_they_copy_each_others_shards_and_report_it(nodes: list[CopiesProcess]) -> None:
    assert nodes[0].report is None
    begin(nodes, 1)
    expected = CopiesReport(step=3, have=2, wanted=2, copied_step=3)
    wait(lambda: all(one.report == expected for one in nodes))


def test_one_that_is_killed_is_started_again_at_its_address(
    nodes: list[CopiesProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "AGAIN", 0.0)
    begin(nodes, 1)
    wait(lambda: all(one.report and one.report.have == 2 for one in nodes))
    before, process = nodes[1].address, nodes[1]._process
    assert process
    process.kill()
    process.wait()
    folder = Path(os.environ["KIT_SNAPSHOT_DIR"])  # node 1's: the next one finds its work there
    (folder / manifest().name / shards.name(0)).unlink()

    def copied_again() -> bool:
        nodes[1].watch()
        return (folder / manifest().name / shards.name(0)).exists()

    wait(copied_again)
    assert nodes[1].address == before


def test_the_file_that_is_read_is_the_one_that_is_written() -> None:
    assert copies.MARK == copies_status.FILE


def test_another_run_is_refused() -> None:
    one, other = (CopiesProcess(NodeEnv(job=JobKeys(), run_id=run), b"secret", print)._key for run in ("a", "b"))
    assert one != other


def test_a_node_ends_once_the_others_have_what_it_has(nodes: list[CopiesProcess], tmp_path: Path) -> None:
    begin(nodes, 1)
    nodes[1].settle(TIMEOUT)
    assert (tmp_path / "node-0" / manifest().name / shards.name(1)).exists()


def test_nobody_waits_for_one_that_is_gone(nodes: list[CopiesProcess], tmp_path: Path) -> None:
    begin(nodes, 1)
    nodes[0].stop()
    nodes[1].settle(TIMEOUT)
    assert copies_status.read(tmp_path / "node-1", "run-1") is not None


def test_one_that_is_told_to_stay_stays_however_long_that_is(
    nodes: list[CopiesProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the node that uploads does not ask for has an end of its own."""
    seconds = itertools.count()
    monkeypatch.setattr(copies, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None))
    begin(nodes, 1)
    one = nodes[1]
    assert one._process
    own, told = one._process.pid, iter(range(100))
    monkeypatch.setattr(one, "_facts", lambda: {"stays": own} if next(told, None) is not None else {"settled": own})
    one.settle(10.0)
    assert next(told, None) is None, "it has not ended before it was told"
    monkeypatch.setattr(one, "_facts", dict)
    one._end = b""
    one.settle(10.0)
    assert next(seconds) < 1000, "nobody asks for it"
