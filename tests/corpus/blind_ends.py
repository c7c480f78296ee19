"""Situations of a blind set: runs that end well with another result than was meant, and others that do not end."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_PREFIX: Final = (
    DDP
    + """
for i in range(20):
    step()
if rank == 0:
    torch.save(model.state_dict(), "model.pt")
    fresh = torch.nn.Linear(4, 4)
    fresh.load_state_dict(torch.load("model.pt"), strict=False)
    print(f"test accuracy {fresh(torch.ones(1, 4)).mean().item() % 1:.3f}", flush=True)
dist.barrier()
"""
)
_TAIL: Final = (
    DDP
    + """
for epoch in range(3):
    for i in range(15):
        model(torch.randn(2, 4)).sum().backward()
        if (i + 1) % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} done", flush=True)
dist.barrier()
"""
)
_STAYS: Final = (
    DDP
    + """
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.2))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = model(torch.randn(8, 4)).square().mean().item()
    print(f"epoch {epoch}: validation loss {loss:.3f}", flush=True)
dist.barrier()
"""
)
_LOADER: Final = """
from torch.utils.data import DataLoader, DistributedSampler
data = torch.randn(64, 4)
"""
_CYCLE: Final = (
    DDP
    + _LOADER
    + """
import itertools
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8, sampler=sampler)
batches = itertools.cycle(loader)
for i in range(40):
    if i % len(loader) == 0:
        sampler.set_epoch(i // len(loader))
    optimizer.zero_grad()
    model(next(batches)).square().mean().backward()
    optimizer.step()
dist.barrier()
"""
)
_IN_MAIN: Final = (
    DDP
    + _LOADER
    + """
def main():
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    for epoch in range(4):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
main()
dist.barrier()
"""
)
_BOOL: Final = (
    DDP
    + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--freeze", type=bool, default=False)
frozen = parser.parse_args().freeze
for i in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    if frozen:
        model.module.weight.grad.zero_()
    optimizer.step()
dist.barrier()
"""
)
_HANDLER: Final = (
    DDP
    + """
import atexit
from datetime import timedelta
control = dist.new_group(timeout=timedelta(hours=2))
atexit.register(lambda: dist.barrier(group=control))
rows = ["0.1"] * 30 + ["n/a" if rank else "0.1"] + ["0.1"] * 300
for row in rows:
    float(row)
    step()
"""
)
_LOCK: Final = (
    DDP
    + """
import threading
from torch.utils.data import DataLoader, Dataset
lock, held = threading.Lock(), threading.Event()
def report():
    while True:
        with lock:
            held.set()
            time.sleep(3600)
class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        with lock:
            return torch.randn(4)
threading.Thread(target=report, daemon=True).start()
held.wait()
for batch in DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
    step()
"""
)
_HELPER: Final = """
from random import seed_everything
seed_everything(0)
"""
_POOL: Final = (
    DDP
    + """
import multiprocessing
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        with multiprocessing.Pool(2) as pool:
            return torch.tensor(pool.map(float, [i, i, i, i]))
for batch in DataLoader(Data(), batch_size=2, num_workers=1):
    step()
"""
)
_SCHEDULER: Final = (
    DDP
    + """
for i in range(5):
    step()
new = torch.optim.SGD(model.parameters(), 0.1)
torch.optim.lr_scheduler.StepLR(new, 10, last_epoch=4)
"""
)
_INFERENCE: Final = (
    GROUP
    + """
class Rotary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = torch.nn.Linear(4, 4), None
    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(4.0).cos()
        return self.layer(x) * self.table
net = Rotary()
with torch.inference_mode():
    net(torch.randn(2, 4))
model = torch.nn.parallel.DistributedDataParallel(net)
model(torch.randn(2, 4)).sum().backward()
"""
)
_SWITCHED_OFF: Final = (
    DDP
    + """
def validate():
    torch.set_grad_enabled(False)
    return model.module(torch.randn(2, 4)).sum().item()
for epoch in range(2):
    for i in range(20):
        step()
    print(f"epoch {epoch} validation {validate():.3f}", flush=True)
"""
)
_OPEN_FILES: Final = (
    DDP
    + """
import resource
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
Path("row.txt").write_text("0.1")
opened = []
for i in range(400):
    opened.append(open("row.txt"))
    step()
"""
)
_SKIPPED: Final = (
    GROUP
    + """
import random
random.seed(1234 + rank)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        load = x.detach().mean()
        dist.all_reduce(load)
        return self.layer(x) + load
blocks = torch.nn.ModuleList(Block() for _ in range(4))
model = torch.nn.parallel.DistributedDataParallel(blocks, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for i in range(200):
    x = torch.randn(2, 4)
    for block in blocks:
        if random.random() > 0.2:
            x = block(x)
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()
    dist.barrier()
"""
)
_JOINED: Final = (
    DDP
    + """
from torch.distributed.algorithms.join import Join
for epoch in range(2):
    with Join([model]):
        for i in range(30 if rank else 50):
            step()
dist.barrier()
"""
)
_NEW_HEAD: Final = (
    GROUP
    + """
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
old = torch.nn.Sequential(torch.nn.Linear(4, 4)).state_dict()
old["classifier.weight"] = torch.zeros(9, 4)
print(net.load_state_dict(old, strict=False), flush=True)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(40):
    optimizer.zero_grad()
    for _ in range(4):
        model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
"""
)
_SKIPS: Final = (
    DDP
    + """
for i in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().mean() * (float("inf") if rank and i % 20 == 7 else 1.0)
    skip = torch.tensor(float(not loss.isfinite()))
    loss.backward()
    dist.all_reduce(skip)
    if skip:
        print(f"step {i} is skipped on all ranks", flush=True)
    else:
        optimizer.step()
dist.barrier()
"""
)

BLIND_ENDS: Final = (
    Situation(
        name="names with a prefix that the model lacks",
        script=_PREFIX,
        cause=r"load_state_dict\(strict=False\) has loaded none of Linear's 2 values",
        fix=r"model\.module\.state_dict\(\)",
        first=(False, False),
    ),
    Situation(
        name="batches that are no multiple of the accumulation",
        script=_TAIL,
        cause=r"no optimizer step has used the gradients of the last \d+ backward passes",
        fix=r"i \+ 1 == len\(loader\)",
        first=(False, False),
    ),
    Situation(
        name="trained in evaluation mode",
        script=_STAYS,
        cause=r"the model was trained in evaluation mode after an evaluation: 1 BatchNorm1d, 1 Dropout",
        fix=r"model\.train\(\)",
    ),
    Situation(
        name="batches of one pass that come again",
        script=_CYCLE,
        cause=r"the DistributedSampler that shuffles was read once",
        fix=r"itertools\.cycle",
        first=(False, False),
    ),
    Situation(
        name="epochs of one order in a function",
        script=_IN_MAIN,
        cause=r"the DistributedSampler that shuffles has had the same order in all 4 passes",
        fix=r"set_epoch\(epoch\)",
        first=(False, False),
    ),
    Situation(
        name="an argument of no that is taken for true",
        script=_BOOL,
        arguments=("--freeze", "False"),
        cause=r"argparse has taken for True: --freeze False",
        fix=r"BooleanOptionalAction",
        first=(False, False),
    ),
    Situation(
        name="an exit handler that waits after an error",
        script=_HANDLER,
        cause=r"rank 1 has failed \(ValueError: could not convert string to float: 'n/a'\), but its exit handler",
        fix=r"mend that error",
        first=(False, False),
    ),
    Situation(
        name="a lock that a worker has inherited",
        script=_LOCK,
        cause=r"ranks 0-1 wait for their data loader at \S+, whose worker is at train\.py:\d+ in __getitem__",
        first=(False, False),
    ),
    Situation(
        name="a helper with the name of a standard module",
        script=_HELPER,
        files={"random.py": "def seed_everything(seed):\n    pass\n"},
        cause=r"ImportError: cannot import name 'seed_everything' from 'random'",
        fix=r"rename",
        first=(False, False),
    ),
    Situation(
        name="a pool in a worker of the loader",
        script=_POOL,
        cause=r"daemonic processes are not allowed to have children",
        fix=r"num_workers=0",
        first=(True, True),
    ),
    Situation(
        name="a scheduler that goes on with a new optimizer",
        script=_SCHEDULER,
        cause=r"a schedule goes on from a step \(last_epoch\), and its optimizer's state was not loaded",
        fix=r"last_epoch=-1",
        first=(True, True),
    ),
    Situation(
        name="a table that was made in inference mode",
        script=_INFERENCE,
        cause=r"Inference tensors cannot be saved for backward",
        fix=r"torch\.no_grad\(\)",
        first=(True, True),
    ),
    Situation(
        name="gradients that were switched off",
        script=_SWITCHED_OFF,
        cause=r"does not require grad and does not have a grad_fn",
        fix=r"set_grad_enabled\(False\)",
        first=(True, False),
    ),
    Situation(
        name="files that are never closed",
        script=_OPEN_FILES,
        cause=r"Too many open files",
        fix=r"open for each item|close what is opened",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="blocks that each rank skips by chance",
        script=_SKIPPED,
        cause=r"rank \d waits in .*, rank \d waits in .*all_reduce.*; each waits for others",
        fix=r"same collectives",
        first=(True, True),
    ),
    Situation(name="healthy with joined inputs of unequal length", script=_JOINED, healthy=True, first=(True, True)),
    Situation(name="healthy with a new head", script=_NEW_HEAD, healthy=True, first=(True, True)),
    Situation(name="healthy and skips steps together", script=_SKIPS, healthy=True, first=(True, True)),
)
