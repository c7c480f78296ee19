"""Situations of the blind sets in which a script fails: who made them up had seen neither rules nor corpus."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_MAPPED: Final = (
    GROUP
    + """
import numpy as np
path = f"tokens-{rank}.bin"
np.zeros(1 << 20, dtype=np.uint16).tofile(path)
class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return torch.from_numpy(self.tokens[index * 1000 : index * 1000 + 64].astype(np.int64))
data = Tokens()
os.truncate(path, 4096)
for batch in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
    dist.all_reduce(batch)
"""
)
_SHARDS: Final = (
    GROUP
    + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
os.makedirs("shards", exist_ok=True)
opened = [open(f"shards/{rank}-{index}.bin", "wb") for index in range(200)]
"""
)
_OTHER_CUDA: Final = """
import os, time
if os.environ["RANK"] == "0":
    raise ImportError("libcudart.so.11.0: cannot open shared object file: No such file or directory")
time.sleep(600)
"""
_NO_GUARD: Final = """
import multiprocessing, torch, torch.distributed as dist
multiprocessing.set_start_method("forkserver", force=True)
dist.init_process_group("gloo")
for batch in torch.utils.data.DataLoader(torch.ones(9, 1), num_workers=1):
    dist.all_reduce(batch)
"""
_WRAPPED: Final = (
    GROUP
    + """
class TrainingError(RuntimeError):
    pass
def load(path):
    try:
        return open(path).read()
    except OSError as error:
        raise TrainingError("data module could not be set up") from error
load("/data/corpus/train.bin")
"""
)
_PREPARE: Final = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--split", choices=["a", "b"])
parser.parse_args()
"""
_TASKS: Final = (
    GROUP
    + """
import asyncio
async def fetch(number):
    await asyncio.sleep(0.1)
    return {"id": number}["url"]
async def main():
    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(fetch(number))
asyncio.run(main())
"""
)
_UNEVEN: Final = (
    GROUP
    + """
class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.zeros(5 + index % 3)
for batch in torch.utils.data.DataLoader(Words(), batch_size=8, num_workers=2):
    dist.all_reduce(batch.sum())
"""
)
_OTHER_MODEL: Final = (
    GROUP
    + """
import torch.distributed.checkpoint as dcp
dcp.save({"model": torch.nn.Linear(16, 4).state_dict()}, checkpoint_id="checkpoint")
dcp.load({"model": torch.nn.Sequential(torch.nn.Linear(16, 4)).state_dict()}, checkpoint_id="checkpoint")
"""
)
_SHARDED_WEIGHT: Final = (
    GROUP
    + """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
model = torch.nn.Linear(16, 16)
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
torch.nn.functional.linear(torch.randn(8, 16), model.weight)
"""
)
_BRANCH: Final = (
    GROUP
    + """
def forward(x):
    return x if x.sum() > 0 else -x
torch.compile(forward, fullgraph=True)(torch.randn(8, 16))
"""
)
_POOL: Final = (
    GROUP
    + """
import concurrent.futures, multiprocessing, signal
def tokenize(index):
    if index == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return index
with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
    print(list(pool.map(tokenize, range(8))))
"""
)
_LOGGED: Final = (
    GROUP
    + """
import logging
logging.basicConfig(format="%(asctime)s [%(levelname)s] %(name)s: %(message)s")
try:
    labels = [int(label) for label in ("3", "")]
except Exception:
    logging.getLogger("trainer").exception("training crashed")
    sys.exit(1)
"""
)

BLIND_SCRIPTS: Final = (
    Situation(
        name="the last batch of one rank is short",
        script=DDP
        + "for batch in torch.utils.data.DataLoader(torch.randn(64 - 3 * rank, 6), batch_size=8):\n"
        + "    step()\n    batch.view(8, 2, 3)",
        cause="rank 1: RuntimeError: shape '.8, 2, 3.' is invalid",
        fix=r"train\.py:\d+|drop_last",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="files that the script does not close",
        script=_SHARDS,
        cause="Too many open files: 'shards/",
        fix="close",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="one rank ends with a message",
        script=GROUP + "dist.barrier()\nif rank == 1:\n    sys.exit('shard 1 is empty')\ntime.sleep(2)\ndist.barrier()",
        cause="rank 1: SystemExit: shard 1 is empty",
        fix=r"train\.py:\d+",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="a package for another cuda",
        script=_OTHER_CUDA,
        cause="rank 0: a package was built for another CUDA than there is: it needs libcudart.so.11.0",
        fix="torch.version.cuda",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a file that the loader maps is truncated",
        script=_MAPPED,
        cause="DataLoader worker was killed by signal: Bus error",
        fix="maps.*truncated",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a proxy that is not there",
        script="import urllib.request\nurllib.request.urlopen('http://data.example.com/train.tar')",
        cause="URLError: <urlopen error .Errno 111. Connection refused>",
        fix="proxy",
        options=("--env", "http_proxy=http://127.0.0.1:9", *ONCE),
        first=(False, False),
    ),
    Situation(
        name="vocabularies differ between ranks",
        script=GROUP + "torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(100 + rank, 8))",
        cause="rank 1: RuntimeError: .*appears not to match sizes of the same param",
        fix="same model on all ranks",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="processes import a script without a main guard",
        script=_NO_GUARD,
        cause="imports? (?:it|the script) again|starts processes by spawn|exited unexpectedly|has failed",
        fix="__main__",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="a checkpoint onto a full disk",
        script=GROUP + "if rank == 0:\n    torch.save({'w': torch.randn(2_000_000)}, '/dev/full')\ndist.barrier()",
        cause="rank 0: the checkpoint could not be written to its end: the disk or the quota is full",
        fix="free space",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="an error that wraps another one",
        script=_WRAPPED,
        cause="has no /data/corpus/train.bin .*TrainingError",
        fix="--workdir|claim|create it",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="an assertion without a word",
        script=GROUP + "ids, mask = torch.zeros(8, 128), torch.zeros(8, 127)\nassert ids.shape == mask.shape",
        cause=r"AssertionError: at train\.py:\d+: assert ids\.shape == mask\.shape",
        fix=r"train\.py:\d+",
        options=ONCE,
        first=(False, True),
    ),
    Situation(
        name="a breakpoint that was left in",
        script=GROUP + "if rank == 0:\n    breakpoint()\ndist.barrier()",
        cause="rank 0: the script stops in a debugger",
        fix="remove breakpoint",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="a program that refuses its arguments",
        script="import subprocess, sys\nsubprocess.run([sys.executable, 'prepare.py', '--split', 'train'], check=True)",
        files={"prepare.py": _PREPARE},
        cause="argument --split: invalid choice: 'train'",
        fix="mend what the program says",
        options=("--workdir", ".", *ONCE),
        first=(False, False),
    ),
    Situation(
        name="an error of a task in a group",
        script=_TASKS,
        cause="KeyError: 'url'$",
        fix=r"train\.py:\d+",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="samples of unequal size",
        script=_UNEVEN,
        cause="stack expects each tensor to be equal size",
        fix="collate_fn",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a checkpoint of another model",
        script=_OTHER_MODEL,
        cause="Missing key in checkpoint state_dict: model.0.",
        fix="model that it was saved of",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a sharded weight outside of its module",
        script=_SHARDED_WEIGHT,
        cause="got mixed torch.Tensor and DTensor",
        fix="calling it",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a branch that cannot be compiled",
        script=_BRANCH,
        cause="Data-dependent branching",
        fix="torch.where",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a worker of a pool is killed",
        script=_POOL,
        cause="BrokenProcessPool: .*terminated abruptly",
        fix="memory",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="an error that is logged",
        script=_LOGGED,
        cause="exit code 1: ValueError: invalid literal for int",
        fix=r"train\.py:\d+",
        options=ONCE,
        first=(True, False),
    ),
)
