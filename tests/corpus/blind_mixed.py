"""Situations of a blind set: processes that wait for ever, labels, compiled and split models, and a locale."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_JOINED: Final = (
    DDP
    + """
import multiprocessing
def simulate(out):
    for i in range(20):
        out.put(bytes(1 << 14))
for i in range(20):
    out = multiprocessing.Queue()
    one = multiprocessing.Process(target=simulate, args=(out,))
    one.start()
    one.join()
    for j in range(20):
        out.get()
    step()
dist.barrier()
"""
)
_READ: Final = _JOINED.replace("    one.join()\n", "").replace("    step()\n", "    one.join()\n    step()\n")
_OPENMP: Final = (
    GROUP
    + """
import multiprocessing
torch.set_num_threads(2)
def whiten(chunk):
    return torch.linalg.eigh(chunk.T @ chunk)[0].sum().item()
raw = torch.randn(20000, 256)
print("norm", torch.linalg.eigh(raw.T @ raw)[0].sum().item(), flush=True)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("parts", pool.map(whiten, raw.chunk(4)), flush=True)
dist.barrier()
"""
)
_SPAWNED: Final = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
def whiten(chunk):
    return torch.linalg.eigh(chunk.T @ chunk)[0].sum().item()
if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(2)
    raw = torch.randn(20000, 64)
    print("norm", torch.linalg.eigh(raw.T @ raw)[0].sum().item(), flush=True)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("parts", pool.map(whiten, raw.chunk(4)), flush=True)
    dist.barrier()
"""
_LOCKED: Final = (
    DDP
    + """
import multiprocessing, threading
lock = threading.Lock()
def flush():
    while True:
        with lock:
            time.sleep(0.2)
threading.Thread(target=flush, daemon=True).start()
def evaluate():
    with lock:
        print("accuracy 0.9", flush=True)
for i in range(5):
    step()
    if rank == 0:
        one = multiprocessing.get_context("fork").Process(target=evaluate)
        one.start()
        one.join()
    dist.barrier()
"""
)
_UNLABELLED: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(24, 3))
classes = {"cat": 0, "dog": 1, "bird": 2}
names = ["cat", "dog", "fox", "bird"] * 5
x, y = torch.randn(20, 24), torch.tensor([classes.get(name, -1) for name in names])
torch.nn.functional.cross_entropy(model(x), y).backward()
"""
)
_INTS: Final = _UNLABELLED.replace('"fox"', '"dog"').replace(
    "for name in names])", "for name in names], dtype=torch.int32)"
)
_COUNTER: Final = (
    GROUP
    + """
class Warm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.layer = 0, torch.nn.Linear(8, 8)
    def forward(self, x):
        self.seen += 1
        return self.layer(x) * min(1.0, self.seen / 100)
model = Warm()
compiled = torch.compile(model, backend="eager", fullgraph=True)
for i in range(40):
    compiled(torch.randn(4, 8)).sum().backward()
dist.barrier()
"""
)
_BEYOND: Final = GROUP + "half = dist.new_group([2, 3])\ndist.barrier()\n"
_HEADS: Final = (
    GROUP
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
class Attention(torch.nn.Module):
    def __init__(self, width=64, heads=8):
        super().__init__()
        self.heads, self.wq = heads, torch.nn.Linear(width, width)
    def forward(self, x):
        b, t, width = x.shape
        return self.wq(x).view(b, t, self.heads, width // self.heads)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = parallelize_module(Attention(), mesh, {"wq": ColwiseParallel()})
model(torch.randn(4, 16, 64)).sum().backward()
"""
)
_LOCALE: Final = GROUP + "import locale\nlocale.setlocale(locale.LC_ALL, 'de_XX.UTF-8')\n"
_FROZEN: Final = (
    GROUP
    + """
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
net[0].lora_a = torch.nn.Parameter(torch.zeros(4, 2))
net.requires_grad_(False)
model = torch.nn.parallel.DistributedDataParallel(net)
"""
)
_SHARDED_LATER: Final = (
    GROUP
    + """
import copy
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(16, 16)
average = copy.deepcopy(model)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.randn(4, 16)).sum().backward()
optimizer.step()
with torch.no_grad():
    for kept, new in zip(average.parameters(), model.parameters()):
        kept.mul_(0.9).add_(new, alpha=0.1)
"""
)
_TIED: Final = (
    GROUP
    + """
from torch.distributed.fsdp import fully_shard
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
    def forward(self, ids):
        return torch.nn.functional.linear(self.embed(ids), self.embed.weight)
model = Tied()
fully_shard(model.embed)
fully_shard(model)
model(torch.randint(50, (4, 8))).sum().backward()
"""
)
_SOFTMAX: Final = (
    GROUP
    + """
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 20), torch.nn.Softmax(dim=1))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(60):
    x, y = torch.randn(32, 16), torch.randint(20, (32,))
    loss = torch.nn.CrossEntropyLoss()(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("accuracy 0.05", flush=True)
dist.barrier()
"""
)
_SCORES: Final = _SOFTMAX.replace(", torch.nn.Softmax(dim=1))", ")").replace(
    "    optimizer.zero_grad()", "    seen = torch.softmax(model(x), 1).argmax(1)\n    optimizer.zero_grad()"
)
_CLIPPED: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
for i in range(60):
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
dist.barrier()
"""
)
_UNSCALED: Final = _CLIPPED.replace(
    "    torch.nn.utils.clip", "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip"
)
_STREAM: Final = (
    DDP
    + """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for i in range(64):
            yield torch.full((4,), float(i))
for x in torch.utils.data.DataLoader(Stream(), batch_size=4, num_workers=2):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
dist.barrier()
"""
)
_PARTS: Final = _STREAM.replace("for i in range(64)", "for i in range(info.id, 64, info.num_workers)")

BLIND_MIXED: Final = (
    Situation(
        name="softmax before a loss that applies it",
        script=_SOFTMAX,
        cause=r"rank 0: a loss was given probabilities: the input of cross_entropy .* is the output of a softmax",
        fix=r"give the loss the raw scores",
        first=(False, False),
    ),
    Situation(
        name="gradients that are clipped while they are scaled",
        script=_CLIPPED,
        cause=r"rank 0: gradients were clipped while GradScaler had scaled them: in 60 of 60 steps",
        fix=r"scaler\.unscale_\(optimizer\) before clip_grad_norm_",
        first=(False, False),
    ),
    Situation(
        name="a process that is joined before its queue is read",
        script=_JOINED,
        cause=r"ranks 0-1 wait for a process whose queue nobody reads at train\.py:\d+",
        fix=r"get\(\) and recv\(\) first, and join\(\) then",
        first=(False, False),
    ),
    Situation(
        name="a pool that is forked after openmp was used",
        script=_OPENMP,
        cause=r"wait for a pool of processes at .*, which is at train\.py:\d+ in whiten, forked without the thread",
        fix=r"start processes by spawn",
        first=(False, False),
    ),
    Situation(
        name="a process that is forked while a thread holds a lock",
        script=_LOCKED,
        cause=r"rank 0 waits for a process at .*, which is at train\.py:\d+.*, forked without the thread",
        fix=r"start processes by spawn",
        first=(False, False),
    ),
    Situation(
        name="a label of samples that have none",
        script=_UNLABELLED,
        options=ONCE,
        cause=r"rank \d: IndexError: Target -1 is out of bounds",
        fix=r"-1 is no class: .*ignore_index=-1",
        first=(True, False),
    ),
    Situation(
        name="labels of another type",
        script=_INTS,
        options=ONCE,
        cause=r"rank \d: RuntimeError: expected target dtype to be Long or Byte, but got Int",
        fix=r"\.long\(\)",
        first=(True, False),
    ),
    Situation(
        name="a counter in a compiled module",
        script=_COUNTER,
        options=ONCE,
        cause=r"rank \d: FailOnRecompileLimitHit",
        fix=r"keep a counter in a tensor",
        first=(False, False),
    ),
    Situation(
        name="a group of ranks that the job lacks",
        script=_BEYOND,
        options=ONCE,
        cause=r"rank \d: ValueError: Rank 2 is out of range\. Valid ranks are 0 to 1",
        fix=r"another number of ranks than the job has",
        first=(True, False),
    ),
    Situation(
        name="heads of a layer that is split over ranks",
        script=_HEADS,
        options=ONCE,
        cause=r"rank \d: RuntimeError: shape '\[4, 16, 8, 8\]' is invalid for input of size 2048",
        fix=r"split over ranks \(tensor parallelism\)",
        first=(False, False),
    ),
    Situation(
        name="a locale that the node lacks",
        script=_LOCALE,
        options=ONCE,
        cause=r"rank \d: Error: unsupported locale setting",
        fix=r"the node lacks the locale that the script names: install it",
        first=(True, False),
    ),
    Situation(
        name="adapters that are frozen with their model",
        script=_FROZEN,
        options=ONCE,
        cause=r"rank \d: RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameter",
        fix=r"freeze first, then add what is trained",
        first=(True, False),
    ),
    Situation(
        name="an average of a model that is sharded later",
        script=_SHARDED_LATER,
        options=ONCE,
        cause=r"rank \d: RuntimeError: aten\.add_\.Tensor got mixed torch\.Tensor and DTensor",
        fix=r"a copy of the model as for an average, are made after fully_shard\(\)",
        first=(True, False),
    ),
    Situation(
        name="a weight that two sharded modules share",
        script=_TIED,
        options=ONCE,
        cause=r"rank \d: RuntimeError: aten\.mm\.default got mixed torch\.Tensor and DTensor",
        fix=r"modules that share a weight are sharded together",
        first=(True, False),
    ),
    Situation(
        name="a data set that its workers do not share out",
        script=_STREAM,
        cause=r"rank 0: the workers of a DataLoader read the same samples: each of 2 has all of Stream",
        fix=r"let the data set yield each worker its own part",
        first=(False, False),
    ),
    Situation(name="healthy and shares out a data set", script=_PARTS, healthy=True, first=(True, True)),
    Situation(name="healthy and looks at probabilities", script=_SCORES, healthy=True, first=(True, True)),
    Situation(name="healthy and unscales before it clips", script=_UNSCALED, healthy=True, first=(True, True)),
    Situation(name="healthy and reads a queue before it joins", script=_READ, healthy=True, first=(True, True)),
    Situation(name="healthy and spawns a pool after openmp", script=_SPAWNED, healthy=True, first=(True, True)),
)
