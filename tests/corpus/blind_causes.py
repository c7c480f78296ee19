"""Situations of a blind set: causes from public threads about torch, data, environment, files, exits and signals."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, Situation

_RECOMPUTE: Final = (
    GROUP
    + """
from torch.utils.checkpoint import checkpoint
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(4, 4), 0
    def forward(self, x):
        self.calls += 1
        x = self.layer(x)
        return torch.sin(x) if self.calls % 2 else torch.sin(x[:1]).expand(2, 4)
block = torch.nn.parallel.DistributedDataParallel(Block())
optimizer = torch.optim.SGD(block.parameters(), 0.1)
for i in range(50):
    optimizer.zero_grad()
    checkpoint(block.module, torch.randn(2, 4, requires_grad=True), use_reentrant=False).sum().backward()
    optimizer.step()
"""
)
_MODULE_BYPASS: Final = (
    DDP
    + """
for i in range(300):
    optimizer.zero_grad()
    model.module(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
)
_FSDP_NOSYNC: Final = (
    GROUP
    + """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model.set_requires_gradient_sync(False)
for i in range(200):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if i % 10 == 0:
        print(f"step {i} of 200", flush=True)
    time.sleep(0.02)
"""
)
_COMPILE_DYNAMIC: Final = (
    GROUP
    + """
@torch.compile(backend="eager", dynamic=True)
def f(x, layer):
    return layer(x.view(8, 4)).sum()
layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4)).module
x = torch.randn(8, 4)
torch._dynamo.mark_dynamic(x, 0)
f(x, layer).backward()
"""
)
_GROUP_ORDER: Final = (
    DDP
    + """
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
for i in range(60):
    step()
    groups = (first, second) if rank == 0 or i < 30 else (second, first)
    for group in groups:
        dist.all_reduce(torch.ones(1), group=group)
"""
)
_TAR_CUT: Final = (
    GROUP
    + """
import io, tarfile
name = f"shard-{rank}.tar"
with tarfile.open(name, "w") as tar:
    for i in range(40):
        info = tarfile.TarInfo(f"{i:05}.bin"); info.size = 5000
        tar.addfile(info, io.BytesIO(bytes(5000)))
if rank == 1:
    os.truncate(name, 100_000)
class Shards(torch.utils.data.IterableDataset):
    def __iter__(self):
        with open(name, "rb") as file, tarfile.open(fileobj=file, mode="r|*") as tar:
            for one in tar:
                yield torch.tensor(list(tar.extractfile(one).read()[:4]), dtype=torch.float32)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for batch in torch.utils.data.DataLoader(Shards(), batch_size=2, num_workers=1):
    model(batch).sum().backward()
"""
)
_MEMMAP_SHORT: Final = (
    GROUP
    + """
import numpy
numpy.arange(1000, dtype=numpy.uint16).tofile("tokens.bin")
tokens = numpy.memmap("tokens.bin", dtype=numpy.uint16, mode="r", shape=(4000,))
"""
)
_FILELOCK: Final = (
    GROUP
    + """
from filelock import FileLock
if rank == 0:
    lock = FileLock("cache.lock")
    lock.acquire()
    open("cache.arrow", "w").write("x")
dist.barrier()
if rank == 1:
    with FileLock("cache.lock", timeout=3):
        print(open("cache.arrow").read())
dist.barrier()
"""
)
_FORK_HANDLE: Final = (
    GROUP
    + """
import zlib
with open(f"records-{rank}.bin", "wb") as file:
    sizes = []
    for i in range(4000):
        record = zlib.compress(str(i).encode() * 50)
        sizes.append((file.tell(), len(record)))
        file.write(record)
class Records(torch.utils.data.Dataset):
    def __init__(self):
        self.file = open(f"records-{rank}.bin", "rb")
    def __len__(self):
        return len(sizes)
    def __getitem__(self, index):
        offset, size = sizes[index]
        self.file.seek(offset)
        return torch.tensor(float(zlib.decompress(self.file.read(size)).decode()[:4]))
for epoch in range(20):
    for batch in torch.utils.data.DataLoader(Records(), batch_size=8, num_workers=4, shuffle=True):
        pass
dist.barrier()
"""
)
_NP_SEED: Final = (
    GROUP
    + """
import numpy
def seed(worker):
    numpy.random.seed(torch.initial_seed() + worker)
data = torch.utils.data.TensorDataset(torch.randn(64, 4))
for batch, in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, worker_init_fn=seed):
    dist.all_reduce(batch)
"""
)
_SCALER_SKIPS: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
for i in range(200):
    optimizer.zero_grad()
    loss = (model(torch.randn(2, 4)) * 1e38 * 1e3).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if i % 20 == 0:
        print(f"iteration {i} done", flush=True)
    time.sleep(0.02)
"""
)
_LOCALE: Final = (
    GROUP
    + """
import locale
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
"""
)
_CLOCK_FOLDER: Final = (
    GROUP
    + """
import datetime, json, pathlib
run = pathlib.Path("/tmp/kit-runs") / datetime.datetime.now().strftime("%H-%M-%S-%f")
if rank == 0:
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"lr": 0.1}))
dist.barrier()
config = json.loads((run / "config.json").read_text())
"""
)
_SPAWN_NONE: Final = """
import os, torch, torch.multiprocessing as mp
def main(index, world):
    torch.distributed.init_process_group("nccl", rank=index, world_size=world)
    print("training", flush=True)
if __name__ == "__main__":
    mp.spawn(main, nprocs=torch.cuda.device_count(), args=(torch.cuda.device_count(),))
"""
_CROSS_DEVICE: Final = (
    DDP
    + """
for i in range(20):
    step()
if rank == 0:
    torch.save(model.module.state_dict(), "/dev/shm/kit-corpus.pt")
    os.rename("/dev/shm/kit-corpus.pt", "last.pt")
dist.barrier()
"""
)
_INTEROP: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model(torch.randn(2, 4)).sum().backward()
torch.set_num_interop_threads(1)
torch.set_num_interop_threads(2)
"""
)
_ATEXIT_FAILS: Final = (
    DDP
    + """
import atexit
def save():
    torch.save(model.module.state_dict(), "results/last.pt")
    print("saved")
atexit.register(save)
for i in range(60):
    step()
"""
)
_LOGGING_ERROR: Final = (
    DDP
    + """
import logging
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
for i in range(40):
    step()
    if i % 10 == 0:
        logging.info("loss %d at", "0.3", i)
if rank == 1:
    logging.critical("the validation set has no labels: giving up")
    sys.exit(4)
dist.barrier()
"""
)
_SIGPIPE: Final = (
    DDP
    + """
import signal, subprocess
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
out = subprocess.Popen(["head", "-c", "1000"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
for i in range(200):
    step()
    if rank == 1:
        out.stdin.write(b"x" * 100); out.stdin.flush()
"""
)
_FSDP_ACCUMULATES_WELL: Final = (
    GROUP
    + """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(60):
    for part in range(3):
        model.set_requires_gradient_sync(part == 2)
        model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
dist.destroy_process_group()
"""
)
_SCALER_WARMS_UP_WELL: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 126)
for i in range(200):
    optimizer.zero_grad()
    loss = (model(torch.randn(2, 4)) - 1).square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    time.sleep(0.01)
"""
)
_LOGGING_ERRORS_WELL: Final = (
    DDP
    + """
import logging
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
for i in range(100):
    step()
    if i % 10 == 0:
        logging.info("loss %d at", "0.3", i)
"""
)
_BROKEN_PIPE_WELL: Final = (
    DDP
    + """
import subprocess
out = subprocess.Popen(["head", "-c", "1000"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
for i in range(100):
    step()
    try:
        out.stdin.write(b"x" * 100); out.stdin.flush()
    except BrokenPipeError:
        out = open(os.devnull, "wb"); out.stdin = out
sys.stdout.buffer.write(bytes(range(256)) * 20)
"""
)
_HANDLES_AND_LOCKS_WELL: Final = (
    GROUP
    + """
from filelock import FileLock
import pathlib
with FileLock("cache.lock"):
    if not pathlib.Path("cache.bin").exists():
        time.sleep(2)
        pathlib.Path("cache.bin").write_bytes(bytes(4000))
class Records(torch.utils.data.Dataset):
    file = None
    def __len__(self):
        return 400
    def __getitem__(self, index):
        self.file = self.file or open("cache.bin", "rb")
        self.file.seek(index)
        return torch.tensor([float(x) for x in self.file.read(4)])
sampler = torch.utils.data.DistributedSampler(Records(), seed=7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in torch.utils.data.DataLoader(Records(), batch_size=8, num_workers=2, sampler=sampler):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""
)
BLIND_CAUSES: Final = (
    Situation(
        name="a checkpointed block that does something else again",
        script=_RECOMPUTE,
        cause=r"CheckpointError: .*Recomputed values",
        fix=r"has to do the same twice",
        first=(True, True),
    ),
    Situation(
        name="a wrapped model that is not called",
        script=_MODULE_BYPASS,
        cause=r"^2 ranks train in a process group, and exchange no gradients",
        fix=r"not model.module",
        first=(True, False),
    ),
    Situation(
        name="gradients that are never exchanged",
        script=_FSDP_NOSYNC,
        cause=r"none of its parameters had a gradient at all 200 steps",
        fix=r"set_requires_gradient_sync",
        first=(True, False),
    ),
    Situation(
        name="a size that is marked as dynamic and fixed",
        script=_COMPILE_DYNAMIC,
        cause=r"ConstraintViolationError: Constraints violated",
        fix=r"mark_dynamic",
        first=(True, False),
    ),
    Situation(
        name="groups that are used in different orders",
        script=_GROUP_ORDER,
        cause=r"ranks 0-1 wait in all_reduce at train.py:\d+, of different groups; each waits for others",
        fix=r"same order on all ranks",
        first=(False, False),
    ),
    Situation(
        name="a stream of a tar file that is cut short",
        script=_TAR_CUT,
        cause=r"ReadError: unexpected end of data .in DataLoader worker",
        fix=r"get it again",
        first=(True, True),
    ),
    Situation(
        name="a file that is shorter than its shape",
        script=_MEMMAP_SHORT,
        cause=r"mmap length is greater than file size",
        fix=r"compare its size",
        first=(True, True),
    ),
    Situation(
        name="a lock of a file that is held too long",
        script=_FILELOCK,
        cause=r"Timeout: The file lock 'cache.lock' could not be acquired",
        fix=r"release it before the others need it",
        first=(True, False),
    ),
    Situation(
        name="one open file for all workers of the loader",
        script=_FORK_HANDLE,
        cause=r"in DataLoader worker process",
        fix=r"open it at its first use",
        first=(True, True),
    ),
    Situation(
        name="a seed of 64 bits",
        script=_NP_SEED,
        cause=r"Seed must be between 0 and 2\*\*32 - 1",
        fix=r"2\*\*32",
        first=(True, False),
    ),
    Situation(
        name="a loss that no scale makes finite",
        script=_SCALER_SKIPS,
        cause=r"^the parameters are not finite",
        fix=r"print the loss",
        first=(True, True),
    ),
    Situation(
        name="a locale that the image has not",
        script=_LOCALE,
        cause=r"unsupported locale setting",
        fix=r"LC_ALL",
        first=(True, True),
    ),
    Situation(
        name="a folder that each rank names by its clock",
        script=_CLOCK_FOLDER,
        cause=r"the node has no \S+/kit-runs/\d\d-",
        fix=r"broadcast_object_list",
        first=(True, False),
    ),
    Situation(
        name="processes for devices that are not there",
        script=_SPAWN_NONE,
        cause=r"^no optimizer step was seen; rank \d: it has started 0 processes",
        fix=r"leave out mp.spawn",
        first=(True, False),
    ),
    Situation(
        name="a checkpoint that is moved to another file system",
        script=_CROSS_DEVICE,
        cause=r"Invalid cross-device link",
        fix=r"shutil.move",
        first=(True, False),
    ),
    Situation(
        name="threads that are set after the first operation",
        script=_INTEROP,
        cause=r"cannot set number of interop threads",
        fix=r"at the beginning of the script",
        first=(True, False),
    ),
    Situation(
        name="an exit handler that fails",
        script=_ATEXIT_FAILS,
        cause=r"printed a traceback, and ended with exit code 0: RuntimeError: Parent directory results does not exist",
        first=(True, False),
    ),
    Situation(
        name="an error of a log message before the failure",
        script=_LOGGING_ERROR,
        cause=r"exit code 4: CRITICAL:root:the validation set has no labels",
        first=(True, True),
    ),
    Situation(
        name="a pipe whose reader has ended",
        script=_SIGPIPE,
        cause=r"killed by SIGPIPE",
        fix=r"whose reader has ended",
        first=(True, False),
    ),
    Situation(
        name="healthy accumulation of sharded gradients",
        script=_FSDP_ACCUMULATES_WELL,
        healthy=True,
        first=(True, True),
    ),
    Situation(name="healthy and skips its first steps", script=_SCALER_WARMS_UP_WELL, healthy=True, first=(True, True)),
    Situation(
        name="healthy with log messages that fail", script=_LOGGING_ERRORS_WELL, healthy=True, first=(True, True)
    ),
    Situation(name="healthy and handles a broken pipe", script=_BROKEN_PIPE_WELL, healthy=True, first=(True, True)),
    Situation(
        name="healthy with locks and a file for each worker",
        script=_HANDLES_AND_LOCKS_WELL,
        healthy=True,
        first=(True, True),
    ),
)
