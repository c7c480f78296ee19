"""`policy.survivors: live` with a model that is sharded, with replicas (HSDP): survivors keep processes and parts."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from kittrain.rank.snapshots.folder.ledger import audit
from kittrain.rank.world.order import Cursor, Order
from tests.exact import TOLERANCE, assert_ends_as_undisturbed, committed, undisturbed
from tests.trainer.nodes import SCRIPTS
from tests.trainer.sharded import skip_without_fsdp_on_cpus
from tests.trainer.test_survivors import BATCH, EPOCHS, KILLS, SAMPLES, STEPS, Survivors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOOP = ["-m", "tests.trainer.scripts.sharded_loop"]
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
EXACT: float = 0  # as many ranks, and no sum in another order


def arguments(epochs: int = EPOCHS) -> list[str]:
    return f"{epochs} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()


class Sharded(Survivors):
    """Nodes of two ranks: each node has a replica, and each of its ranks a part."""

    script = "sharded_loop.py"

    def __init__(
        self, folder: Path, nodes: str = "2", *, epochs: int = EPOCHS, step_time: str = "0.02", **env: str
    ) -> None:
        skip_without_fsdp_on_cpus()
        self.own_env = {"OMP_NUM_THREADS": "1", **env}
        self.arguments = arguments(epochs)
        super().__init__(folder, nodes, PET_NPROC_PER_NODE="2", **self.own_env)
        words = [*self.arguments, "--step-time", step_time, "--record", str(self.records)]
        self._command = (str(SCRIPTS / self.script), *words)
        self.epochs = epochs

    def trained_by(self, *nodes: int) -> list[int]:
        """The process ids of the first round's ranks, once they have taken some steps."""
        self.start(*nodes)
        self.until_true(lambda: len(list(self.records.glob("*.jsonl"))) == 2 * len(nodes), "all ranks")
        pids = [pid for index in nodes for pid in self.in_order(index)]
        self.until_step(pids[0], 10)
        return pids

    def in_order(self, index: int) -> list[int]:
        """The process ids of a node's ranks that have taken a step, by their number."""
        numbers = {int(path.stem.split("-")[3]): int(path.stem.split("-")[1]) for path in self.records.glob("*.jsonl")}
        return sorted((pid for pid in self.ranks(index) if pid in numbers), key=numbers.__getitem__)

    def done(self, *nodes: int) -> None:
        """Wait until training has ended well."""
        assert [self.wait(index, 600.0) for index in nodes] == [0] * len(nodes), self.everything()

    def assert_exact(self, *, tolerance: float = EXACT, ranks: int = 4) -> None:
        """The ledger has each sample once, and the result is that of a run without faults."""
        assert audit(committed(self.snapshots), ORDER) == Cursor(self.epochs, 0)
        own = {name: text for name, text in self.own_env.items() if not name.startswith("KIT_")}
        whole = undisturbed([*LOOP, *self.arguments], self.folder, ranks=ranks, **own)
        assert_ends_as_undisturbed(self.snapshots, self.records, whole, tolerance=tolerance)

    def assert_whole(self, *pids: int) -> None:
        """These processes have taken each step, once."""
        steps = list(range(1, self.epochs * ORDER.steps_per_epoch + 1))
        for pid in pids:
            assert [step for _, step in self.steps(pid)] == steps


@pytest.mark.parametrize("loop", [{}, pytest.param({"FIT": "1"}, marks=pytest.mark.wide)], ids=["own", "fit"])
def test_a_rank_is_killed_and_the_others_live_on(tmp_path: Path, loop: dict[str, Any]) -> None:
    with Sharded(tmp_path, **loop) as nodes:
        pids = nodes.trained_by(0, 1)
        os.kill(pids[3], signal.SIGKILL)
        nodes.until_step(pids[0], 20, generation=2)
        assert [*nodes.in_order(0), nodes.in_order(1)[0]] == pids[:3]
        nodes.done(0, 1)
        nodes.assert_whole(*pids[:3])
        nodes.assert_exact()


@pytest.mark.wide
@pytest.mark.parametrize("loop", [{}, pytest.param({"FIT": "1"}, marks=pytest.mark.long)], ids=["own", "fit"])
def test_rank_0_and_then_a_node_are_killed(tmp_path: Path, loop: dict[str, Any]) -> None:
    with Sharded(tmp_path, **loop) as nodes:
        pids = nodes.trained_by(0, 1)
        os.kill(pids[0], signal.SIGKILL)
        nodes.until_step(pids[3], 20, generation=2)
        nodes.until_true(lambda: len(nodes.in_order(0)) == 2, "rank 0's replacement")
        pids[0] = nodes.in_order(0)[0]
        nodes.kill(1)
        nodes.start(1)
        nodes.done(0, 1)
        nodes.assert_whole(pids[1])
        assert {generation for generation, _ in nodes.steps(pids[1])} == {1, 2, 3}
        joined = [step for _, step in nodes.steps(pids[0])]
        assert joined == list(range(joined[0], STEPS + 1))
        nodes.assert_exact()


@pytest.mark.wide
def test_the_number_of_replicas_changes(tmp_path: Path) -> None:
    with Sharded(tmp_path, "1:2", step_time="0.06") as nodes:
        pids = nodes.trained_by(0, 1)
        nodes.kill(0)
        nodes.until_step(pids[2], 20, generation=2)
        assert nodes.in_order(1) == pids[2:]
        nodes.start(0)
        nodes.until_step(pids[2], 25, generation=3)
        assert nodes.in_order(1) == pids[2:]
        nodes.done(0, 1)
        nodes.assert_whole(*pids[2:])
        nodes.assert_exact(tolerance=TOLERANCE)


@pytest.mark.wide
def test_node_0_is_drained_and_comes_back_and_the_others_live_on(tmp_path: Path) -> None:
    with Sharded(tmp_path, "1:2", step_time="0.06") as nodes:
        pids = nodes.trained_by(0, 1)
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        nodes.until_step(pids[2], 20, generation=2)
        assert nodes.in_order(1) == pids[2:]
        nodes.start(0)
        nodes.until_true(lambda: len(list(nodes.records.glob("*.jsonl"))) == 6, "the newcomers' steps")
        assert nodes.in_order(1) == pids[2:]
        nodes.done(0, 1)
        nodes.assert_whole(*pids[2:])
        for pid in pids[2:]:
            assert {generation for generation, _ in nodes.steps(pid)} == {1, 2, 3}, "one round for each change"
        for pid in pids[:2]:
            steps = [step for _, step in nodes.steps(pid)]
            assert steps == list(range(1, steps[-1] + 1))
        nodes.assert_exact(tolerance=TOLERANCE)


@pytest.mark.wide
def test_both_ranks_that_hold_a_part_are_lost_and_all_go_on_from_a_snapshot(tmp_path: Path) -> None:
    with Sharded(tmp_path, KIT_SNAPSHOTS_EVERY_STEPS="5") as nodes:
        pids = nodes.trained_by(0, 1)
        for pid in (pids[1], pids[3]):
            os.kill(pid, signal.SIGKILL)
        nodes.done(0, 1)
        assert "holds part 2 of 2 of the model" in nodes.everything()
        assert not {*pids} & {pid for pid in pids if nodes.steps(pid)[-1][1] == STEPS}
        nodes.assert_exact()


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        *("accumulate", "whole", "mixed", "clip", "flat", "frozen", "batchnorm", "compiled", "autocast"),
        "clip accumulate flat whole",
    ],
)
@pytest.mark.parametrize("loop", [{}, {"FIT": "1"}], ids=["own", "fit"])
def test_models_and_loops(tmp_path: Path, options: str, loop: dict[str, Any]) -> None:
    with Sharded(tmp_path, OPTIONS=options, **loop) as nodes:
        pids = nodes.trained_by(0, 1)
        os.kill(pids[2], signal.SIGKILL)
        nodes.until_step(pids[0], 20, generation=2)
        nodes.until_true(lambda: len(nodes.in_order(1)) == 2, "the replacement")
        os.kill(pids[1], signal.SIGKILL)
        nodes.done(0, 1)
        nodes.assert_whole(pids[0], pids[3])
        nodes.assert_exact()


class Dying(Sharded):
    """Nodes whose second rank dies at a point of a step."""

    script = "dying.py"

    def __init__(self, folder: Path, point: str, **env: Any) -> None:
        super().__init__(folder, TRAINS=LOOP[1], **env)
        script, *words = self._command
        self._command = (script, point, str(folder / "marker"), *words)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["forward", "backward", "last exchange", "before the update", "after the update", "half applied"]
)
@pytest.mark.parametrize("loop", [{}, {"FIT": "1"}], ids=["own", "fit"])
def test_a_rank_dies_at_each_point_of_a_step(tmp_path: Path, point: str, loop: dict[str, Any]) -> None:
    with Dying(tmp_path, point, **loop) as nodes:
        pids = nodes.trained_by(0, 1)
        nodes.done(0, 1)
        assert (tmp_path / "marker").exists()
        nodes.assert_whole(*(pids[2:] if point == "half applied" else pids[2:] + pids[:1]))
        nodes.assert_exact()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loop", [{}, {"FIT": "1"}], ids=["own", "fit"])
def test_random_kills_and_the_weights_are_those_of_an_undisturbed_run(tmp_path: Path, loop: dict[str, Any]) -> None:
    seed = int(os.environ.get("KILLS_SEED", random.randrange(10**6)))
    print(f"KILLS_SEED={seed}", flush=True)
    rng = random.Random(seed)
    settings: dict[str, Any] = {"KIT_POLICY_MAX_RESTARTS": "1000", "KIT_SNAPSHOTS_EVERY_STEPS": "50"}
    with Sharded(tmp_path, epochs=2 * KILLS, **loop, **settings) as job:
        job.trained_by(0, 1)
        replaced = [_kill(job, rng) for _ in range(KILLS)]
        job.done(0, 1)
    print(f"{sum(replaced)} other ranks did not live on, in {sum(map(bool, replaced))} of {KILLS} faults")
    assert sum(map(bool, replaced)) <= KILLS // 10
    job.assert_exact()


def _kill(job: Sharded, rng: random.Random) -> int:
    """Kill a rank or a node at a random moment, while all train; returns how many others did not live on."""
    job.until_true(lambda: _all_train(job), "four ranks that train")
    pids = [pid for index in (0, 1) for pid in job.in_order(index)]
    victim, node = rng.randrange(4), rng.random() < 0.3
    job.until_step(pids[victim], job.steps(pids[victim])[-1][1] + rng.randrange(10))
    time.sleep(rng.uniform(0.0, 0.05))
    lost = {victim} if not node else {victim // 2 * 2, victim // 2 * 2 + 1}
    if node:
        job.kill(victim // 2)
        job.start(victim // 2)
    else:
        os.kill(pids[victim], signal.SIGKILL)
    job.until_true(lambda: _all_train(job) and pids[victim] not in job.ranks(victim // 2), "four ranks after a kill")
    return sum(pid not in job.ranks(rank // 2) for rank, pid in enumerate(pids) if rank not in lost)


def _all_train(job: Sharded) -> bool:
    """Whether four ranks have taken a step of the same round."""
    pids = [pid for index in (0, 1) for pid in job.in_order(index)]
    last = [job.steps(pid)[-1:] for pid in pids]
    return len(pids) == 4 and all(last) and len({generation for ((generation, _),) in last}) == 1
