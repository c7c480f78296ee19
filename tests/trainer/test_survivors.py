"""`policy.survivors: live`: other ranks keep their processes and state, and no finished step is repeated."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kitjob import timeline
from kittrain.rank.snapshots.folder.ledger import audit
from kittrain.rank.world.order import Cursor, Order
from tests.exact import TOLERANCE, assert_ends_as_undisturbed, committed, undisturbed, weights
from tests.trainer.nodes import SCRIPTS, Nodes

pytestmark = pytest.mark.slow

EPOCHS, SAMPLES, BATCH = 4, 512, 16
KILLS = int(os.environ.get("KILLS", "100"))
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
STEPS = EPOCHS * ORDER.steps_per_epoch
WORKLOAD = f"-m kittrain.workloads.toy {EPOCHS} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()
LIVE = {"KIT_POLICY_SURVIVORS": "live", "KIT_SNAPSHOTS_EVERY_STEPS": "100000"}  # none can be resumed from
EARLY = """
import torch
from torch.utils.data import TensorDataset
from kittrain import Data, Training, join
with join() as world:
    world.barrier()
    model = torch.nn.Linear(1, 1)
    data = Data(TensorDataset(torch.rand(64, 1)), batch=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda model, batch: model(batch[0]).square().mean()
    Training(world, model, optimizer, loss, data, epochs=10**6, on_step=lambda step: world.print("stepped")).fit()
"""


class Survivors(Nodes):
    """Nodes that train ``toy``, and record each step of each process."""

    def __init__(
        self, folder: Path, nodes: str = "2:3", *options: str, workload: Sequence[str] = WORKLOAD, **env: str
    ) -> None:
        self.records = folder / "records"
        words = [*workload, "--step-time", "0.02", "--record", str(self.records), *options]
        super().__init__(folder, *words, nodes=nodes, **{**LIVE, **env})

    def trained(self) -> list[int]:
        """The process ids of the first round's ranks by node, once they have taken some steps."""
        self.start(0, 1, 2)
        self.until_true(lambda: len(list(self.records.glob("*.jsonl"))) == 3, "three ranks")
        (first,), (second,), (third,) = (self.ranks(index) for index in range(3))
        self.until_step(first, 10)
        return [first, second, third]

    def steps(self, pid: int) -> list[tuple[int, int]]:
        """Generation and number of each step that a process has recorded."""
        files = list(self.records.glob(f"*-pid-{pid}.jsonl"))
        lines = files[0].read_text().splitlines() if files else []
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return [(record["generation"], record["step"]) for record in records]

    def until_step(self, pid: int, step: int, *, generation: int = 1) -> None:
        """Wait until a process has taken a step in a generation."""
        self.until_true(
            lambda: any(one >= generation and number >= step for one, number in self.steps(pid)),
            f"step {step} of generation {generation} by {pid}",
        )

    def recoveries(self) -> list[dict[str, float]]:
        """The parts of each recovery, in seconds, as the agents have written them to the history."""
        files = (self.snapshots / timeline.FOLDER).rglob("node-*/*")
        lines = [line for path in files for line in timeline.lines(path.read_bytes())]
        found = [line.parts for line in lines if isinstance(line, timeline.Event) and line.what == "recovered"]
        assert found
        return found


def assert_exact(nodes: Survivors, folder: Path) -> None:
    """The ledger has each sample once, and the result is that of a run without faults."""
    assert audit(committed(nodes.snapshots), ORDER) == Cursor(EPOCHS, 0)
    assert_ends_as_undisturbed(nodes.snapshots, nodes.records, undisturbed(WORKLOAD, folder, ranks=3))


def test_a_rank_and_then_node_0_are_killed_and_the_others_live_on(tmp_path: Path) -> None:
    with Survivors(tmp_path) as nodes:
        first, second, third = nodes.trained()

        os.kill(second, signal.SIGKILL)
        nodes.until_step(first, 20, generation=2)
        assert (nodes.ranks(0), nodes.ranks(2)) == ([first], [third])
        (replacement,) = nodes.ranks(1)
        assert replacement != second

        nodes.kill(0)
        assert [nodes.wait(index) for index in (1, 2)] == [0, 0]

        assert [step for _, step in nodes.steps(third)] == list(range(1, STEPS + 1))
        joined = [step for _, step in nodes.steps(replacement)]
        assert joined == list(range(joined[0], STEPS + 1))
        assert {generation for generation, _ in nodes.steps(third)} == {1, 2, 3}
        assert_exact(nodes, tmp_path)
        assert [part for recovery in nodes.recoveries() for part in recovery.values() if part < 0] == []


def test_ranks_live_on_when_node_0_is_drained_and_when_it_is_back(tmp_path: Path) -> None:
    with Survivors(tmp_path, "2:3", "--step-time", "0.06") as nodes:
        first, second, third = nodes.trained()

        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        nodes.until_step(second, 20, generation=2)
        assert (nodes.ranks(1), nodes.ranks(2)) == ([second], [third])

        nodes.start(0)
        nodes.until_true(lambda: len(list(nodes.records.glob("*.jsonl"))) == 4, "a newcomer's step")
        assert (nodes.ranks(1), nodes.ranks(2)) == ([second], [third])
        (newcomer,) = nodes.ranks(0)
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]

        for pid in (second, third):
            assert [step for _, step in nodes.steps(pid)] == list(range(1, STEPS + 1))
            assert {generation for generation, _ in nodes.steps(pid)} == {1, 2, 3}, "one round for each change"
        after, joined = ([step for _, step in nodes.steps(pid)] for pid in (first, newcomer))
        assert after == list(range(1, after[-1] + 1))
        assert joined == list(range(joined[0], STEPS + 1))
        assert_exact(nodes, tmp_path)


OWN_LOOP = ["-m", "tests.trainer.scripts.own_loop", *WORKLOAD[2:]]


class OwnLoop(Survivors):
    """Nodes whose loop is the script's own."""

    def __init__(self, folder: Path, nodes: str = "2:3", *options: str, **env: str) -> None:
        super().__init__(folder, nodes, *options, **env)
        self._command = (str(SCRIPTS / "own_loop.py"), *self._command[2:])


@pytest.mark.wide
def test_a_loop_of_the_script_s_own_lives_on_when_nodes_are_killed_drained_and_back(tmp_path: Path) -> None:
    back, killed = tmp_path / "back", tmp_path / "killed"
    waits = ["--wait-at", "60", str(back), "--wait-at", "100", str(killed)]
    with OwnLoop(tmp_path, "2:3", "--step-time", "0.06", *waits) as nodes:
        first, second, third = nodes.trained()

        os.kill(second, signal.SIGKILL)
        nodes.until_step(first, 20, generation=2)
        assert (nodes.ranks(0), nodes.ranks(2)) == ([first], [third])
        (second,) = nodes.ranks(1)

        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        nodes.until_step(third, 40, generation=3)
        assert (nodes.ranks(1), nodes.ranks(2)) == ([second], [third])

        nodes.start(0)
        nodes.until_true(lambda: "scaling up" in nodes.everything(), "node that is back")
        back.touch()
        nodes.until_true(lambda: len(list(nodes.records.glob("*.jsonl"))) == 5, "a newcomer's step")
        assert (nodes.ranks(1), nodes.ranks(2)) == ([second], [third])
        nodes.kill(1)
        killed.touch()
        assert [nodes.wait(index) for index in (0, 2)] == [0, 0]

        assert [step for _, step in nodes.steps(third)] == list(range(1, STEPS + 1))
        assert {generation for generation, _ in nodes.steps(third)} == {1, 2, 3, 4, 5}
        assert audit(committed(nodes.snapshots), ORDER) == Cursor(EPOCHS, 0)
        whole = undisturbed(OWN_LOOP, tmp_path, ranks=3)
        assert_ends_as_undisturbed(nodes.snapshots, nodes.records, whole)


@pytest.mark.parametrize(
    "env",
    [
        {"DIES_AT": "update of step 32"},
        pytest.param({"DIES_AT": "update of step 32", "EACH_STEP": "1"}, marks=pytest.mark.wide),
        pytest.param({"DIES_AT": "samples of step 33", "LOADS": "3"}, marks=pytest.mark.wide),
    ],
    ids=["scheduler each epoch", "scheduler each step", "slow samples"],
)
def test_a_rank_dies_between_two_epochs(tmp_path: Path, env: dict[str, str]) -> None:
    """The others have done all of the first one's work when the exchange of its last losses fails; or load samples."""
    marker = tmp_path / "died"
    with OwnLoop(tmp_path, "3", DIES=str(marker), **env) as nodes:
        nodes.start(0, 1, 2)
        nodes.until_true(lambda: len(list(nodes.records.glob("*.jsonl"))) == 4, "a newcomer's step")
        (first,), (second,), (third,) = (nodes.ranks(index) for index in range(3))
        nodes.until_step(first, ORDER.steps_per_epoch + 10, generation=2)
        os.kill(second, signal.SIGKILL)
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]
        assert marker.exists()
        for pid in (first, third):
            assert [step for _, step in nodes.steps(pid)] == list(range(1, STEPS + 1))
            assert {generation for generation, _ in nodes.steps(pid)} == {1, 2, 3}
        assert audit(committed(nodes.snapshots), ORDER) == Cursor(EPOCHS, 0)
    assert_ends_as_undisturbed(
        nodes.snapshots, nodes.records, undisturbed(OWN_LOOP, tmp_path, ranks=3, **env | {"DIES_AT": ""})
    )


@pytest.mark.wide
def test_a_rank_dies_at_the_end_of_training_and_no_step_is_repeated(tmp_path: Path) -> None:
    """The others write the last snapshot, which is the first one here."""
    marker = tmp_path / "died"
    with OwnLoop(tmp_path, "3", "--step-time", "0", DIES=str(marker), DIES_AT="end") as nodes:
        nodes.start(0, 1, 2)
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]
        assert marker.exists()
        taken = [
            json.loads(line)["step"] for path in nodes.records.glob("*.jsonl") for line in path.read_text().splitlines()
        ]
    assert sorted(taken) == sorted(3 * list(range(1, STEPS + 1)))
    assert audit(committed(nodes.snapshots), ORDER) == Cursor(EPOCHS, 0)


@pytest.mark.wide
@pytest.mark.parametrize("loop", [{}, {"FIT": "1"}], ids=["own", "fit"])
def test_batch_statistics_are_those_of_an_undisturbed_run(tmp_path: Path, loop: dict[str, str]) -> None:
    """Also of the step that was cut short, whose forward pass has changed them on some ranks."""
    with OwnLoop(tmp_path, "3", BATCHNORM="1", **loop) as nodes:
        first, second, third = nodes.trained()
        for number in (1, 2):
            os.kill(second, signal.SIGKILL)
            nodes.until_step(first, 20 * number, generation=number + 1)
            (second,) = nodes.ranks(1)
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]
        assert [step for _, step in nodes.steps(third)] == list(range(1, STEPS + 1))
    whole = undisturbed(OWN_LOOP, tmp_path, ranks=3, BATCHNORM="1", **loop)
    assert_ends_as_undisturbed(nodes.snapshots, nodes.records, whole)
    assert "1.running_mean" in weights(nodes.snapshots)


class Dying(Survivors):
    """Nodes whose second rank dies, or third one blocks, at a point of a step."""

    def __init__(self, folder: Path, point: str) -> None:
        super().__init__(folder)
        self._command = (str(SCRIPTS / "dying.py"), point, str(folder / "marker"), *self._command[2:])


@pytest.mark.long
@pytest.mark.parametrize("point", ["forward", "backward", "before the update", "after the update", "half applied"])
def test_a_rank_dies_at_each_point_of_a_step(tmp_path: Path, point: str) -> None:
    with Dying(tmp_path, point) as nodes:
        first, _, third = nodes.trained()
        assert [nodes.wait(index) for index in (0, 1, 2)] == [0, 0, 0]
        assert (tmp_path / "marker").exists()
        for pid in (first, third):
            assert [step for _, step in nodes.steps(pid)] == list(range(1, STEPS + 1))
        assert_exact(nodes, tmp_path)


@pytest.mark.long
def test_a_rank_that_does_not_leave_its_round_is_replaced(tmp_path: Path) -> None:
    with Dying(tmp_path, "blocked") as nodes:
        first, _, third = nodes.trained()
        nodes.until(2, "this rank's collective did not end")
        assert [nodes.wait(index) for index in (0, 1, 2)] == [0, 0, 0]
        assert [step for _, step in nodes.steps(first)] == list(range(1, STEPS + 1))
        assert nodes.steps(third)[-1][1] < STEPS
        assert_exact(nodes, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("nodes", "virtual", "epochs", "seconds"),
    [("3", "4", 4 * KILLS // 5, 0.02), ("2:3", "0", 6 * KILLS // 5, 0.05)],
    ids=["fixed size, virtual ranks", "elastic"],
)
def test_a_hundred_random_kills_and_the_weights_are_those_of_an_undisturbed_run(
    tmp_path: Path, nodes: str, virtual: str, epochs: int, seconds: float
) -> None:
    """With virtual ranks bit for bit, else but for the order of sums."""
    seed = int(os.environ.get("KILLS_SEED", random.randrange(10**6)))
    print(f"KILLS_SEED={seed}", flush=True)
    rng = random.Random(seed)
    workload = [*WORKLOAD[:2], str(epochs), *WORKLOAD[3:]]
    settings = {"KIT_VIRTUAL_RANKS": virtual, "KIT_POLICY_MAX_RESTARTS": "1000", "KIT_POLICY_GROW_EVERY": "1s"}
    with Survivors(tmp_path, nodes, "--step-time", str(seconds), workload=workload, **settings) as job:
        job.trained()
        replaced = sum(_kill(job, rng) for _ in range(KILLS))
        assert [job.wait(index, 900.0) for index in range(3)] == [0, 0, 0]
    print(f"{replaced} of {2 * KILLS} other ranks did not live on")
    assert replaced <= KILLS // 10
    assert audit(committed(job.snapshots), ORDER) == Cursor(epochs, 0)
    whole = undisturbed(workload, tmp_path, ranks=1 if int(virtual) else 3, KIT_VIRTUAL_RANKS=virtual)
    tolerance = 0 if int(virtual) else TOLERANCE
    assert_ends_as_undisturbed(job.snapshots, job.records, whole, tolerance=tolerance)


def _kill(job: Survivors, rng: random.Random) -> int:
    """Kill a rank or a node at a random moment, while all train; returns how many others did not live on."""
    job.until_true(lambda: _all_train(job), "three ranks that train")
    pids = [job.ranks(index)[0] for index in range(3)]
    victim, node = rng.randrange(3), rng.random() < 0.5
    job.until_step(pids[victim], job.steps(pids[victim])[-1][1] + rng.randrange(10))
    time.sleep(rng.uniform(0.0, 0.05))
    if node:
        job.kill(victim)
        job.start(victim)
    else:
        os.kill(pids[victim], signal.SIGKILL)
    job.until_true(lambda: _all_train(job) and job.ranks(victim) != [pids[victim]], "three ranks after a kill")
    return sum(job.ranks(index) != [pid] for index, pid in enumerate(pids) if index != victim)


def _all_train(job: Survivors) -> bool:
    """Whether three ranks have taken a step of the same round."""
    pids = [pid for index in range(3) for pid in job.ranks(index)]
    last = [job.steps(pid)[-1:] for pid in pids]
    return len(pids) == 3 and all(last) and len({generation for ((generation, _),) in last}) == 1


def test_ranks_that_communicate_before_fit_are_restarted(tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    script.write_text(EARLY)
    with Nodes(tmp_path, str(script), nodes="2", **LIVE) as nodes:
        nodes.start(0, 1)
        nodes.until(0, "all ranks are restarted if one is lost, although policy.survivors is live: the script's ranks")
        nodes.until(0, "stepped")
        before = nodes.ranks(0)
        os.kill(nodes.ranks(1)[0], signal.SIGKILL)
        nodes.until(0, "training with 2 ranks", times=2)
        assert nodes.ranks(0) != before
