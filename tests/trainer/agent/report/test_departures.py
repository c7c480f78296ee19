"""A rank that ends with exit code 0 while others need it: the round is charged, and the job ends with that reason.

So it does where ranks call different collectives, or one of them with different tensors.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kittrain.agent.report.departures import Departures, departure
from kittrain.agent.report.failure_message import failure_ending
from kittrain.outcome.failures import Budget, Failure
from kittrain.outcome.judge import Verdict
from kittrain.system.calls import NO_CALL, Call
from tests.trainer.nodes import Nodes

PLAIN = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1000):
    if rank == int(os.environ["LEAVER"]) and step == 3:
        raise SystemExit(0)
    dist.all_reduce(torch.ones(1))
"""
OWN_LOOP = """
import os
import torch
from torch.nn import functional
from kittrain import Run, join
with join(seed=0) as world:
    model = torch.nn.Linear(2, 1)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.ones(64, 2), torch.zeros(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    with Run(world, model=model, optimizer=optimizer) as run:
        for epoch in run.epochs(9):
            for x, y in run.batches(loader):
                if run.steps_done == 3 and os.environ["RANK"] == os.environ["LEAVER"]:
                    os._exit(0)
                optimizer.zero_grad()
                loss = functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                run.step(loss)
"""
# Its agent cannot wait for the rank until its tracer ends, although its connections are closed: so it is, for a moment,
# wherever the kernel interrupts an exit.
HELD = """
                    import ctypes, time
                    attached, attach = os.pipe()
                    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER: Yama allows children, too
                    if os.fork() == 0:
                        assert ctypes.CDLL(None).ptrace(0x4206, os.getppid(), None, None) == 0  # PTRACE_SEIZE
                        os.write(attach, b"-")
                        os.closerange(3, 4096)
                        time.sleep(0.5)
                        os._exit(0)
                    assert os.read(attached, 1)
                    os._exit(0)
"""
HELD_AT_ITS_END = OWN_LOOP.replace("os._exit(0)\n", HELD.strip() + "\n")
REASON = r"rank {} ended with exit code 0 at \d\d:\d\d:\d\d UTC(, \d s before|;) rank \d lost it"


@pytest.mark.parametrize(
    ("script", "nodes", "ranks", "leaver"),
    [(PLAIN, 3, 1, 0), (PLAIN, 1, 3, 1), (OWN_LOOP, 2, 2, 3), (HELD_AT_ITS_END, 2, 2, 3)],
    ids=["rank 0 of three nodes", "rank 1 on one node", "Run, the last of two nodes", "and cannot be waited for yet"],
)
@pytest.mark.slow
def test_a_rank_that_leaves_early_uses_up_the_restarts(
    tmp_path: Path, script: str, nodes: int, ranks: int, leaver: int
) -> None:
    (tmp_path / "train.py").write_text(script)
    job = Nodes(
        tmp_path,
        str(tmp_path / "train.py"),
        nodes=str(nodes),
        PET_NPROC_PER_NODE=str(ranks),
        PET_MAX_RESTARTS="2",
        LEAVER=str(leaver),
    )
    with job:
        job.start(*range(nodes))
        assert [job.wait(index) for index in range(nodes)] == [78] * nodes
        end = job.end(leaver // ranks)
        assert re.fullmatch(REASON.format(leaver) + ", no restart left of 2", end["reason"])
        assert "same number of steps" in end["fix"]
        assert len(re.findall(REASON.format(leaver) + r", restart \d of 2", job.everything())) == 2
        assert all(job.end(index)["reason"] == end["reason"] for index in range(nodes))
        assert job.report()["restarts"] == 2  # the third round was given up as it formed
        causes = [one["cause"] for one in job.report()["failures"]]
        assert all(re.fullmatch(REASON.format(leaver).partition(" ")[2].partition(" ")[2], cause) for cause in causes)
        assert len(causes) >= 2


# A script that prepares on rank 0 for longer than the others wait.
LATE = """
import datetime, time
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
if dist.get_rank() == 0:
    time.sleep(30)
dist.barrier()
"""


@pytest.mark.slow
def test_a_time_out_at_one_place_without_a_step_uses_up_the_restarts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LATE)
    job = Nodes(tmp_path, str(tmp_path / "train.py"), nodes="2", PET_MAX_RESTARTS="1")
    with job:
        job.start(0, 1)
        assert [job.wait(index) for index in range(2)] == [78] * 2
        end = job.end(1)
        assert re.search(
            r"rank 1 lost its peers \(.*\) 3 times there without a step, no restart left of 1", end["reason"]
        )
        assert job.report()["restarts"] == 2, "the first time-out is not charged: a rank may have been slow"


# The ranks' last collectives: small tensors, with which gloo may end on one rank and not on another.
DIFFERENT = """
import os, datetime
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()
dist.barrier()
{}
"""


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ("dist.all_reduce(torch.ones(1 + rank))",
         r"rank \d called all_reduce of \[\d\] float32, where rank \d called all_reduce of \[\d\] float32"),
        ("dist.broadcast(torch.ones(4), 0) if rank else dist.all_reduce(torch.ones(4))",
         "rank 0 called all_reduce, where rank 1 called broadcast"),
    ],
    ids=["shapes", "collectives"],
)  # fmt: skip
@pytest.mark.slow
def test_ranks_that_call_different_collectives_use_up_the_restarts(tmp_path: Path, calls: str, reason: str) -> None:
    (tmp_path / "train.py").write_text(DIFFERENT.format(calls))
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="3", PET_MAX_RESTARTS="1") as job:
        job.start(0, 1, 2)
        job.until_true(lambda: bool(re.search(f"fatal: {reason}, no restart left of 1", job.everything())), reason)
        assert len(re.findall(f"{reason}, restart 1 of 1", job.everything())) == 1
        advice = "the same collectives in the same order"
        job.until_true(lambda: any(advice in one.read_text() for one in tmp_path.glob("end-*.json")), advice)


def explained(*nodes: Departures) -> dict[str, object] | None:
    return departure([node.facts for node in nodes])


def node(_index: int, *, size: int = 3, **known: object) -> Departures:
    return Departures(round=4, size=size, **known)  # type: ignore[arg-type]


LEFT, LOST = (0, 86400.0 + 83.0), (1, 86400.0 + 86.2)


def test_the_nodes_together_know_who_left_and_when() -> None:
    found = explained(node(0, left=LEFT), node(1, lost=LOST), node(2, lost=(2, LOST[1] + 1)))
    assert found == {
        "rank": 0,
        "exit_code": 0,
        "error": "ended with exit code 0 at 00:01:23 UTC, 3 s before rank 1 lost it",
        "time": int(LEFT[1]),
    }
    failure = Failure(**found)  # type: ignore[arg-type]
    assert failure.kind == "left"
    assert not Budget(max_restarts=0).charge(failure.kind)


def test_a_rank_that_has_come_as_far_as_the_others_has_not_left_early() -> None:
    left, lost = node(0, left=LEFT), node(1, lost=LOST)
    left.saw_calls([(0, NO_CALL)], {0: 9})
    for reached, error in ((9, "finished the collective in which rank 1 lost it, and "), (10, ""), (0, "")):
        lost.saw_calls([(1, NO_CALL)], {1: reached})
        found = explained(left, lost, node(2))
        assert found
        assert str(found["error"]).startswith(f"{error}ended with exit code 0 at 00:01:23 UTC")
        assert Failure(**found).kind == "left"  # type: ignore[arg-type]


def test_calls_that_contradict_each_other_explain_more_than_who_left() -> None:
    small, large = (Call(number=2, group=1, size=4 * n, name="all_reduce", tensor=f"[{n}] float32") for n in (1, 2))
    left, lost, other = node(0, left=LEFT), node(1, lost=LOST), node(2)
    for one, known in ((left, [(0, small), (3, small)]), (lost, [(1, large)]), (other, [(2, small)])):
        one.saw_calls(known, {})
    found = explained(left, lost, other)
    assert found
    assert found["error"] == "called all_reduce of [2] float32, where rank 0 called all_reduce of [1] float32"
    assert found["rank"] == 1
    assert [one.has(1) for one in (left, lost, other)] == [False, True, False]
    failure = Failure(**found)  # type: ignore[arg-type]
    assert failure.kind == "left"
    assert "same shape and type" in failure.cause.fix
    left.left = None
    assert explained(left, lost, other) == found, "all ranks have timed out"
    assert explained(left, node(1), other) is None, "nobody was lost"


def test_clocks_that_differ_give_no_seconds() -> None:
    found = explained(node(0, left=LEFT), node(1, lost=(1, 5.0)), node(2))
    assert found
    assert found["error"] == "ended with exit code 0 at 00:01:23 UTC; rank 1 lost it"


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [Departures(), Departures()],  # the first round
        [node(0, left=LEFT), node(1), node(2)],  # nobody misses it
        [node(0), node(1, lost=LOST), node(2)],  # a network, perhaps
        [node(0, left=LEFT), node(1, lost=LOST)],  # the third node is lost
        [node(0, left=LEFT), node(1, lost=LOST), Departures()],  # its agent is new
        [node(0, left=LEFT), node(1, lost=LOST), node(2, failed=True)],  # that explains more
    ],
)
def test_another_explanation_is_not_charged(nodes: list[Departures]) -> None:
    assert explained(*nodes) is None


def test_what_a_rank_had_printed_explains_why_it_left() -> None:
    found = explained(node(0, left=LEFT, said="KeyError: 'ids'"), node(1, lost=LOST, said="nothing"), node(2))
    assert found
    assert str(found["error"]).endswith("rank 1 lost it, after it had printed: KeyError: 'ids'")
    seen = node(0)
    seen.saw_end(lambda rank: f"rank {rank}")
    assert seen.said == "", "none has left"
    seen.saw_codes([4, 5], [None, 0], 1.0)
    seen.saw_end(lambda rank: f"rank {rank}")
    assert (seen.said, seen.by) == ("rank 5", "")
    seen.saw_end(lambda _: "", lambda rank: f"train.py:{rank} in stop")
    assert seen.by == "train.py:5 in stop"


def test_where_a_rank_has_called_for_its_end_is_told() -> None:
    found = explained(node(0, left=LEFT, by="train.py:41 in stop"), node(1, lost=LOST, by="elsewhere"), node(2))
    assert found
    assert ", in sys.exit() at train.py:41 in stop, " in str(found["error"])


def test_a_node_that_joins_explains_nothing() -> None:
    assert explained(node(0, left=LEFT, size=2), node(1, lost=LOST, size=2), Departures())


def test_only_the_first_departure_counts_and_only_peers_are_lost() -> None:
    seen = node(0)
    seen.saw_codes([4, 5], [None, 3], 1.0)
    seen.saw_codes([4, 5], [None, 0], 2.0)
    seen.saw_codes([4, 5], [0, 0], 3.0)
    assert (seen.left, seen.has(5), seen.has(4), seen.explained) == ((5, 2.0), True, False, False)
    seen.saw_failure(Failure(rank=4, exit_code=1, error="DistError: gone", time=0), 4.0)
    assert (seen.lost, seen.failed, seen.explained) == ((4, 4.0), False, True)
    seen.saw_failure(Failure(rank=4, exit_code=75, error="", time=0), 4.0)
    assert seen.failed


def test_a_departure_is_no_failure_where_the_script_went_further(tmp_path: Path) -> None:
    budget = Budget(max_restarts=1, snapshot_dir=tmp_path)
    for step in range(5):
        (tmp_path / f"step-{step:08d}-g0001").mkdir()
        assert budget.charge("left")
    assert budget.charge("left") is False, "steps alone do not count"


def test_a_hundred_lost_peers_end_the_job() -> None:
    budget, lost = Budget(max_restarts=3), Failure(rank=1, exit_code=1, error="DistError: gone", time=0)
    endings = [failure_ending(Verdict(cause=lost, restart=budget.charge("peer")), budget) for _ in range(101)]
    assert [ending.outcome for ending in endings] == [*["retryable"] * 100, "fatal"]
    assert endings[-1].reason == "rank 1 lost its peers (DistError: gone) after 101 such losses without a new snapshot"
