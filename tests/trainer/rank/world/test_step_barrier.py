"""The barrier of ranks of one host is of sockets, that of others a collective: real groups of two processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.ranks import pair

RANK = """\
import os, sys, threading, time
from datetime import timedelta
import torch.distributed as dist
from kittrain.rank.world import rounds, step_barrier

class Heartbeat:
    def left(self, number):
        pass

folder, rank, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
if case == "hosts":
    step_barrier._here = lambda: rank
elif case == "unreachable" and rank:
    step_barrier._connect = lambda *_: None
elif case == "no address" and rank:
    step_barrier._listener = lambda _: None
elif case == "over" and rank:
    step_barrier._connect = lambda *_: time.sleep(60)  # it has stopped
own = rounds.Rounds(None, Heartbeat())
own._told = True
if case == "over":
    threading.Timer(0.5, own._end, (1,)).start()
try:
    barrier = own.barrier_of(dist.group.WORLD, timeout=timedelta(seconds=60))
    for _ in range(3):
        barrier.arrive()
        barrier.wait()
    if case == "told":
        barrier.arrive()
        dist.barrier()
        own._end(1)
        barrier.wait()  # both have come before they were told
        print("passed", flush=True)
        barrier.arrive()
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)
print(type(barrier).__name__, flush=True)
barrier.close()
os._exit(0)
"""


@pytest.mark.parametrize(
    ("case", "printed"),
    [
        ("one host", "HostBarrier\n"),
        pytest.param("hosts", "CollectiveBarrier\n", marks=pytest.mark.long),
        ("unreachable", "CollectiveBarrier\n"),
        pytest.param("no address", "CollectiveBarrier\n", marks=pytest.mark.long),
        ("told", "passed\nBarrierError: Connection closed by peer\n"),
    ],
)
def test_all_ranks_of_a_group_have_the_same_barrier(tmp_path: Path, case: str, printed: str) -> None:
    assert pair(tmp_path, RANK, case) == [printed] * 2


def test_a_round_that_ends_while_ranks_connect_is_left(tmp_path: Path) -> None:
    first, *_ = pair(tmp_path, RANK, "over", wait_for=1)
    assert first == "BarrierError: Connection closed by peer\n"
