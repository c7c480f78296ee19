"""Killed ranks resume from in-memory copies: on real nodes, in any number, with replicated and sharded states."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

from kittrain.rank.snapshots.folder.snapshot import read_manifest
from kittrain.rank.snapshots.proof import prove
from kittrain.rank.world.order import Order
from tests.exact import assert_each_sample_counts_once, assert_ends_as_undisturbed, undisturbed
from tests.trainer import runs, sharded
from tests.trainer.nodes import Nodes
from tests.trainer.sharded import Kind

EPOCHS, SAMPLES, BATCH = 3, 1024, 16
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
WORKLOAD = f"-m kittrain.workloads.toy {EPOCHS} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()
RESUMED = re.compile(r"resuming after step (\d+), in epoch \d+(, from copies in memory)?")


def newest(records: Path) -> int:
    """The last recorded step."""
    path = max(records.glob("*"), key=lambda path: path.stat().st_mtime, default=None)
    steps = re.findall(r'"step": (\d+)', path.read_text()[-200:]) if path else []
    return int(steps[-1]) if steps else 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_rank_loses_a_few_steps_and_a_lost_node_those_since_the_snapshot(tmp_path: Path) -> None:
    records, memory = tmp_path / "records", tmp_path / "memory"
    memory.mkdir()

    def reached(step: int) -> None:
        nodes.until_true(lambda: newest(records) >= step, f"step {step}")

    def going_on() -> tuple[int, bool]:
        """The step that the ranks resume from next, and whether from memory."""
        seen.append("")
        nodes.until_true(lambda: len(RESUMED.findall(nodes.output(0))) >= len(seen), "ranks that go on")
        step, copies = RESUMED.findall(nodes.output(0))[-1]
        return int(step), bool(copies)

    seen: list[str] = []
    steps = {
        "KIT_SNAPSHOTS_EVERY_STEPS": "100",
        "KIT_SNAPSHOTS_MEMORY_EVERY_STEPS": "4",
        "KIT_MEMORY_ROOT": str(memory),
    }
    with Nodes(tmp_path, *WORKLOAD, "--step-time", "0.03", "--record", str(records), nodes="3", **steps) as nodes:
        nodes.start(0, 1, 2)

        reached(50)
        os.kill(nodes.ranks(1)[0], signal.SIGKILL)
        step, from_memory = going_on()
        assert from_memory
        assert 0 < step < 100, "there is no snapshot yet"

        reached(130)
        nodes.kill(1)
        (lost,) = memory.glob("*local-1-*")
        shutil.rmtree(lost)
        nodes.start(1)
        assert going_on() == (100, False)

        reached(150)
        nodes.kill(1)  # the machine stays up
        nodes.start(1)
        step, from_memory = going_on()
        assert from_memory
        assert step > 100
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]

    assert not list(memory.iterdir())
    ledger = assert_each_sample_counts_once(nodes.snapshots, records, ORDER, epochs=EPOCHS)
    assert {entry.generation for entry in ledger} == {1, 2, 3, 4}
    manifests = {path.name: read_manifest(path) for path in nodes.snapshots.glob("step-*")}
    assert not [proof for proof in (prove(one, manifests) for one in manifests.values()) if proof.broken]
    assert_ends_as_undisturbed(nodes.snapshots, records, undisturbed(WORKLOAD, tmp_path, ranks=3), tolerance=0)


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("replicated", marks=pytest.mark.long), "sharded"])
def test_any_number_of_ranks_resumes_and_all_skip_damaged_copies(tmp_path: Path, kind: Kind) -> None:
    snapshots, whole, memory = tmp_path / "run" / "snapshots", tmp_path / "whole" / "snapshots", tmp_path / "memory"
    for folder in (snapshots, whole):
        folder.mkdir(parents=True)
    env = {"KIT_SNAPSHOTS_EVERY_STEPS": "100", "KIT_SNAPSHOTS_MEMORY_EVERY_STEPS": "1", "KIT_MEMORY_DIR": str(memory)}
    codes = sharded.run([snapshots] * 3, kind, 3, dies_at=9, env=env)
    assert codes[-1] == -signal.SIGKILL
    held = [{path.name for path in memory.glob(f"{rank}/step-*")} for rank in range(3)]
    older, *newer = sorted(set.intersection(*held))
    for name in newer:
        runs.flip(memory / "1" / name / "shard-00001.bin")
    assert sharded.run([snapshots] * 4, kind, 3, env=env) == [0] * 4
    log = (tmp_path / "run" / "log-0").read_text()
    assert log.count("shard-00001.bin differs from its checksum") == len(newer)
    step = int(older.split("-")[1])
    assert f"resuming after step {step}, " in log
    assert "from copies in memory, with 4 ranks" in log

    # The same from a snapshot of that step: with 3 ranks before it and 4 after it, as sums depend on their number.
    assert sharded.run([whole] * 3, kind, 3, env={"KIT_SNAPSHOTS_EVERY_STEPS": str(step)}) == [0] * 3
    for path in whole.iterdir():
        if not path.name.startswith(f"step-{step:08}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert sharded.run([whole] * 4, kind, 3) == [0] * 4
    assert f"resuming after step {step}, in epoch" in (tmp_path / "whole" / "log-0").read_text()
    expected = torch.load(whole / "model.pt", weights_only=True)
    found = torch.load(snapshots / "model.pt", weights_only=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
