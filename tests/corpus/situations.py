"""Situations of the corpus: a script that makes each on this machine, and what has to be told of it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, Literal

GROUP: Final = """
import os, sys, time, torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
"""
DDP: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A situation.

    Attributes:
        name: in a few words.
        script: that makes it, on two nodes.
        cause: regular expression of what has to come first, the cause or, of a job that stands still, the fact.
        fix: of a fix that is right; empty: none is asked for.
        options: of submit.
        healthy: nothing is wrong: no cause and no fix may be told, and nothing may be ended.
    """

    name: str
    script: str
    cause: str = ""
    fix: str = ""
    options: tuple[str, ...] = ()
    healthy: bool = False

    @property
    def half(self) -> Literal["first", "second"]:
        """By chance, and the same each time: rules are written on the first half."""
        return "second" if zlib.crc32(self.name.encode()) % 2 else "first"

    @property
    def file(self) -> str:
        """Of what was recorded."""
        return f"{self.name.replace(' ', '-')}.json"


def only(rank: int, what: str) -> str:
    """A statement for one rank."""
    return f"if rank == {rank}:\n    {what}\ndist.barrier()\n"


ONCE: Final = ("--max-restarts", "0")
SITUATIONS: Final = (
    Situation(
        name="exit code",
        script=GROUP + only(1, "sys.exit(print('no config: /data/c.yaml', file=sys.stderr) or 3)"),
        cause=r"rank 1: exit code 3: no config: /data/c\.yaml",
        options=ONCE,
    ),
    Situation(
        name="exception on one rank",
        script=GROUP + only(1, "raise ValueError('bad shard')"),
        cause=r"rank 1: ValueError: bad shard",
        fix=r"train\.py:\d+",
        options=ONCE,
    ),
    Situation(
        name="missing module", script="import flash_attn", cause="No module named 'flash_attn'", fix="--requirements"
    ),
    Situation(
        name="missing file",
        script="open('/data/cfg.yaml')",
        cause="no /data/cfg.yaml",
        fix="create it|path",
        options=ONCE,
    ),
    Situation(
        name="no network interface",
        script=GROUP,
        cause="no network interface eth99",
        fix="ip link",
        options=("--env", "GLOO_SOCKET_IFNAME=eth99", *ONCE),
    ),
    Situation(
        name="different shapes",
        script=GROUP + "dist.all_reduce(torch.ones(10 + 1000 * rank))",
        cause="different shapes",
        fix="same on all ranks",
        options=ONCE,
    ),
    Situation(name="no memory", script="raise MemoryError", cause="MemoryError", fix="use less", options=ONCE),
    Situation(
        name="failed assertion",
        script="size = 3\nassert size % 2 == 0, 'odd size'",
        cause="AssertionError: odd size",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="json that is none",
        script="import json\njson.loads('{')",
        cause="JSONDecodeError",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="wrong shape of a layer",
        script="import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 3))",
        cause="shapes cannot be multiplied",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="killed by a signal",
        script=GROUP + only(0, "os.kill(os.getpid(), 9)"),
        cause="killed by SIGKILL",
        fix="kernel log",
        options=ONCE,
    ),
    Situation(
        name="refused arguments",
        script="import argparse\nargparse.ArgumentParser().parse_args(['--epochs', '3'])",
        cause="unrecognized arguments: --epochs 3",
        fix="arguments",
    ),
    Situation(
        name="left early",
        script=GROUP + "if rank == 0:\n    sys.exit()\ndist.all_reduce(torch.ones(1))",
        cause="rank 0 ended with exit code 0",
        fix="same number of steps",
        options=ONCE,
    ),
    Situation(
        name="a rank sleeps",
        script=GROUP + only(1, "time.sleep(600)"),
        cause=r"rank 1 sleeps at train\.py:\d+, rank 0 waits in barrier",
    ),
    Situation(
        name="a rank spins",
        script=DDP + "for i in range(9999):\n    while i == 60 and rank == 1:\n        pass\n    step()",
        cause=r"rank 1 is busy at train\.py:\d+, rank 0 waits in all_reduce of its backward pass",
    ),
    Situation(
        name="no group",
        script="import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(600)\n" + GROUP,
        cause=r"rank 1 sleeps at train\.py:3, rank 0 waits in init_process_group",
    ),
    Situation(
        name="other collectives",
        script=GROUP + "dist.all_reduce(torch.ones(1)) if rank else dist.barrier()\ntime.sleep(600)",
        cause=r"waits in barrier.*waits in all_reduce|waits in all_reduce.*waits in barrier",
    ),
    Situation(
        name="a loader is stuck",
        script=DDP
        + """
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, index):
        return time.sleep(600 * (index == 30))  or torch.ones(1)
for batch in torch.utils.data.DataLoader(Items(), num_workers=1):
    step()
""",
        cause="ranks 0-1 wait for their data loader",
    ),
    Situation(
        name="healthy slow start",
        script="import time\ntime.sleep(18)\n" + DDP + "for _ in range(50):\n    step()",
        healthy=True,
    ),
    Situation(
        name="healthy long step",
        script=DDP + "for i in range(400):\n    step()\n    time.sleep(10 * (i == 300))",
        healthy=True,
    ),
    Situation(
        name="healthy evaluation",
        script=DDP
        + """
for i in range(100):
    step()
end = time.time() + 20
while time.time() < end:
    model.module(torch.ones(64, 4))
for i in range(50):
    step()
""",
        healthy=True,
    ),
    Situation(
        name="healthy save of rank 0",
        script=DDP
        + """
for i in range(100):
    step()
if rank == 0:
    end = time.time() + 20
    while time.time() < end:
        torch.save(model.state_dict(), "ck.pt")
dist.barrier()
for i in range(50):
    step()
""",
        healthy=True,
    ),
    Situation(
        name="healthy uneven ranks",
        script=DDP + "for i in range(100):\n    time.sleep(0.1 * rank)\n    step()",
        healthy=True,
    ),
    Situation(name="healthy without torch", script="import time\ntime.sleep(25)", healthy=True),
)
