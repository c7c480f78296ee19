"""Situations of a blind set: training that resumes, adds up gradients or loads data in another way than was meant."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_SCHEDULE: Final = (
    DDP
    + """
def part(first, last, checkpoint):
    model = torch.nn.Linear(4, 4)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 41)
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    for i in range(first, last):
        optimizer.zero_grad()
        wrapped(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
part(20, 40, part(0, 20, None))
dist.barrier()
"""
)
_NO_SYNC: Final = (
    DDP
    + """
from contextlib import nullcontext
for i in range(40):
    with nullcontext() if i % 4 == 0 else model.no_sync():
        model(torch.randn(2, 4)).square().mean().backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
"""
)
_WORKERS: Final = (
    DDP
    + """
from torch.utils.data import DataLoader, Dataset
class Augmented(Dataset):
    epoch = 0
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.randn(4, generator=torch.Generator().manual_seed(self.epoch * 16 + index))
data = Augmented()
loader = DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True)
for epoch in range(3):
    data.epoch = epoch
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
dist.barrier()
"""
)
_CAUGHT: Final = (
    DDP
    + """
def train():
    for i in range(30):
        step()
    torch.stack([torch.ones(3), torch.ones(2)])
try:
    train()
except Exception as error:
    print(f"training ended: {type(error).__name__}", flush=True)
finally:
    print("bye", flush=True)
dist.barrier()
"""
)
_SENDERS: Final = (
    DDP
    + """
for i in range(50):
    step()
plan = [{"lr": 0.1}]
dist.broadcast_object_list(plan, src=rank)
"""
)
_CLOSURE: Final = (
    DDP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def closure():
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    return loss
for i in range(50):
    optimizer.zero_grad()
    optimizer.step(closure)
for _ in range(1 + rank):  # as LBFGS does, as often as a rank's own loss asks for
    closure()
dist.barrier()
"""
)
_HIDDEN: Final = """
import torch
import profile
print(profile.measure(lambda: 1), flush=True)
import cProfile
"""
_DEFAULT: Final = """
from dataclasses import dataclass
@dataclass
class Model:
    width: int = 4
@dataclass
class Experiment:
    model: Model = Model()
"""
_SLURM: Final = (
    GROUP
    + """
import os
folder = f"runs/{os.environ['SLURM_JOB_ID']}"
"""
)
_ALARM: Final = (
    DDP
    + """
import signal
def limited(seconds, call):
    before = signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    signal.alarm(seconds)
    try:
        return call()
    finally:
        signal.signal(signal.SIGALRM, before)
limited(3, lambda: None)
for i in range(4000):
    step()
    time.sleep(0.01)
"""
)

_NO_SERVER: Final = """
import os
import socket
from datetime import timedelta
import torch.distributed as dist
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(
    "127.0.0.1", 28761, size, is_master=socket.gethostname() == "trainer-0", timeout=timedelta(minutes=30)
)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
"""
BLIND_TRAINING: Final = (
    Situation(
        name="a store that no rank serves",
        script=_NO_SERVER,
        cause=r"ranks 0-1 wait in TCPStore at train\.py:\d+; each waits for others",
        fix=r"is_master=\(rank == 0\)",
        first=(False, False),
    ),
    Situation(
        name="a schedule that begins anew",
        script=_SCHEDULE,
        cause=r"a learning rate schedule began anew, although its optimizer was resumed: LambdaLR at its first step",
        fix=r"scheduler\.state_dict\(\)",
        first=(False, False),
    ),
    Situation(
        name="the last batch of a step without an exchange",
        script=_NO_SYNC,
        cause=r"optimizer steps used gradients that were not averaged over the ranks: 10 steps of 4 backward passes",
        fix=r"no_sync\(\)",
        first=(False, False),
    ),
    Situation(
        name="an epoch that persistent workers do not see",
        script=_WORKERS,
        cause=r"the persistent workers of a DataLoader do not see .*: Augmented\.epoch is 1, and 0 in the workers",
        fix=r"persistent_workers=False",
        first=(False, False),
    ),
    Situation(
        name="an error that is caught and named",
        script=_CAUGHT,
        cause=r"rank \d printed an error .*training ended: RuntimeError",
        first=(False, False),
    ),
    Situation(
        name="objects of which each rank is the source",
        script=_SENDERS,
        cause=r"ranks 0-1 wait in broadcast_object_list from themselves at train\.py:\d+; each waits for others",
        fix=r"name the same rank on all",
        first=(False, False),
    ),
    Situation(
        name="a closure that one rank calls more often",
        script=_CLOSURE,
        cause=r"rank 0 waits in barrier at train\.py:\d+, rank 1 waits in all_reduce of its backward pass at "
        r"train\.py:\d+ in closure; each waits for others",
        fix=r"average the loss",
        first=(False, False),
    ),
    Situation(
        name="a file that hides profile",
        script=_HIDDEN,
        files={"profile.py": "def measure(call):\n    return call()\n"},
        cause=r"the script's own profile\.py hides Python's module profile, which has run",
        fix=r"give profile\.py another name",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="a default that is an object",
        script=_DEFAULT,
        cause=r"mutable default <class '[\w.]*Model'> for field model",
        fix=r"model: Model = field\(default_factory=Model\)",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="a folder by the number of slurm",
        script=_SLURM,
        cause=r"the variable SLURM_JOB_ID is not set: another launcher than kitctl sets it",
        fix=r"TORCHELASTIC_RUN_ID",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="an alarm that nobody cancels",
        script=_ALARM,
        cause=r"killed by SIGALRM",
        fix=r"signal\.alarm\(0\)",
        options=ONCE,
        first=(True, False),
    ),
)
