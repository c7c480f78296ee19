"""Situations of a blind set that was drawn from public threads of users, before its author had seen rules or corpus."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, Situation

_STOPS_EARLY: Final = (
    DDP
    + """
best, bad = 1e9, 0
for epoch in range(400):
    step()
    loss = 0.5 if rank == 0 else 0.5 - epoch
    best, bad = (loss, 0) if loss < best else (best, bad + 1)
    if bad > 20:
        break
"""
)
_LOCAL_RANK: Final = """
import os, torch.distributed as dist
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "23498"
dist.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=2)
"""
_LOGGED: Final = (
    GROUP
    + """
import logging, pathlib
if rank == 0:
    try:
        rows = [{"prompt": "a", "answer": "b"}, {"prompt": "c"}]
        pathlib.Path("prepared").write_text(str([row["answer"] for row in rows]))
    except Exception:
        logging.exception("the data could not be prepared")
else:
    while not pathlib.Path("prepared").exists():
        time.sleep(0.5)
dist.barrier()
"""
)
_EMPTY_MEAN: Final = (
    DDP
    + """
for i in range(400):
    x = torch.randn(16, 4)
    chosen = x[x[:, 0] > (10 if i > 60 else -10)]
    loss = (model(chosen) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 10 == 0:
        print(f"step {i} loss {loss.item()}", flush=True)
    time.sleep(0.05)
"""
)
_DOWNLOADS: Final = """
import time, urllib.request, urllib.error
for attempt in range(100):
    try:
        urllib.request.urlopen("http://127.0.0.1:9/model.safetensors", timeout=1)
    except urllib.error.URLError as error:
        print(f"{error} while downloading the model. Retrying in 4 s [{attempt}/100]", flush=True)
        time.sleep(4)
"""
_HIDDEN: Final = """
import torch, torch.distributed as dist, traceback
def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    batch = {"input": torch.randn(2, 4)}
    model(batch["inputs"]).sum().backward()
try:
    main()
except Exception as error:
    traceback.print_exc()
    print(f"An error occurred: {error!r}")
"""
_NO_FILES: Final = (
    DDP
    + """
import glob
for epoch in range(10):
    for name in glob.glob("/data/imagenet/train/*.tar"):
        step()
dist.destroy_process_group()
"""
)
_FOLDER: Final = (
    GROUP
    + """
import pathlib, tempfile
run = [tempfile.mkdtemp(dir=".")]
dist.broadcast_object_list(run)
(pathlib.Path(run[0]) / "checkpoints").mkdir()
dist.barrier()
"""
)
_EVALUATES: Final = (
    DDP
    + """
right = torch.zeros(1)
with torch.no_grad():
    for i in range(80):
        right += (model(torch.randn(64, 4)).argmax(1) == 0).sum()
        time.sleep(0.05)
dist.all_reduce(right)
print("accuracy", right.item() / 10240)
"""
)
_TRIES_AGAIN: Final = (
    DDP
    + """
import logging, urllib.request
if rank == 0:
    for attempt in range(2):
        try:
            urllib.request.urlopen("http://127.0.0.1:9/data", timeout=1)
        except OSError:
            logging.exception("the download failed, and is tried again")
dist.barrier()
for i in range(100):
    step()
"""
)
_DATA: Final = """
import os, time
for shard in range(int(os.environ["RANK"]), 20, 2):
    time.sleep(0.1)
    print(f"shard {shard}: error rate 0.1 %, val_loss nan", flush=True)
"""
BLIND_THREADS: Final[tuple[Situation, ...]] = (
    Situation(
        name="early stopping by the loss of one rank",
        script=_STOPS_EARLY,
        cause=r"rank 0 ended with exit code 0 .* rank 1 lost it",
        fix="same number of steps",
        first=(False, True),
    ),
    Situation(
        name="the local rank in place of the rank",
        script=_LOCAL_RANK,
        cause=r"init_process_group at train.py:4; rank 1 says: rank 0 is not this process's RANK, which is 1",
        first=(False, False),
    ),
    Situation(
        name="an error that is only logged while others poll",
        script=_LOGGED,
        cause=r"rank 1 sleeps.* at train.py:\d+.*rank 0 says: KeyError: 'answer'",
        first=(False, False),
    ),
    Situation(
        name="a loss of no samples",
        script=_EMPTY_MEAN,
        cause="the loss is not finite, as rank 0 prints it: step .* loss nan",
        fix="look at the data",
        first=(False, False),
    ),
    Situation(
        name="a download that is tried again for ever",
        script=_DOWNLOADS,
        cause="ranks 0-1 sleep at train.py:.*says: .*Connection refused",
        first=(False, False),
    ),
    Situation(
        name="an error that is printed and hidden",
        script=_HIDDEN,
        cause="^no optimizer step was seen; rank . printed a traceback, and ended with .*: KeyError: 'inputs'$",
        first=(False, False),
    ),
    Situation(
        name="a folder without data",
        script=_NO_FILES,
        cause="^no optimizer step was seen$",
        first=(False, False),
    ),
    Situation(
        name="a folder that all ranks make",
        script=_FOLDER,
        cause="FileExistsError",
        fix="exist_ok=True",
        first=(True, False),
    ),
    Situation(
        name="a variable of another launcher",
        script='import os\nrank = int(os.environ["SLURM_PROCID"])',
        cause="SLURM_PROCID is not set",
        fix="RANK, WORLD_SIZE and LOCAL_RANK",
        first=(True, False),
    ),
    Situation(
        name="a name that the library has no more",
        script="import numpy\nnumpy.arange(4, dtype=numpy.float)",
        cause="module 'numpy' has no attribute 'float'",
        fix="numpy has no np.float since 1.24: write float",
        first=(True, False),
    ),
    Situation(
        name="an import that the library has no more",
        script="from torch.utils.data import get_worker_infos",
        cause="cannot import name 'get_worker_infos'",
        fix="the installed torch has no get_worker_infos",
        first=(True, False),
    ),
    Situation(
        name="an argument that the library has no more",
        script="import torch\ntorch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentums=0.9)",
        cause="unexpected keyword argument 'momentums'",
        fix="takes no momentums",
        first=(True, False),
    ),
    Situation(
        name="a folder of a checkpoint that was never finished",
        script=GROUP
        + """
import torch.distributed.checkpoint as dcp
os.makedirs("checkpoint-500", exist_ok=True)
dcp.load({"model": torch.nn.Linear(4, 1).state_dict()}, checkpoint_id="checkpoint-500")
""",
        cause="metadata",
        fix="no whole checkpoint",
        first=(True, False),
    ),
    Situation(
        name="a worker of the loader that ends itself",
        script=GROUP
        + """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        if index == 100:
            os._exit(1)
        return torch.ones(4)
for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1):
    dist.all_reduce(batch)
""",
        cause="DataLoader worker .* exited unexpectedly",
        fix="num_workers=0",
        first=(True, False),
    ),
    Situation(name="an evaluation alone", script=_EVALUATES, healthy=True, first=(True, True)),
    Situation(name="a download that is tried again", script=_TRIES_AGAIN, healthy=True, first=(True, True)),
    Situation(name="preparing data", script=_DATA, healthy=True, first=(True, True)),
)
