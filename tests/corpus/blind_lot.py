"""Situations of a blind set that was drawn by lot from causes that public threads found, for what was mended then."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_SLOW_CHECKPOINT: Final = (
    GROUP.replace('"gloo"', '"gloo", timeout=datetime.timedelta(seconds=8)').replace("import os", "import datetime, os")
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def save(path):
    content = b"0" * 60
    with open(path, "wb") as file:
        for at in range(60):
            file.write(content[at:at + 1])
            time.sleep(1)

for i in range(400):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if i % 100 == 99 and rank == 0:
        save("average.pt")
"""
)
_STREAM: Final = """
class Shards(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from torch.ones(80, 4)
"""
BLIND_LOT: Final = (
    Situation(
        name="a checkpoint that takes longer than the others wait",
        script=_SLOW_CHECKPOINT,
        cause="the ranks of node 1 timed out after 8000 ms in a collective|rank 0 (?:is busy|sleeps).* at train.py",
        fix="a longer timeout",
        first=(False, False),
    ),
    Situation(
        name="a size that is data of another collective",
        script=DDP
        + """
for epoch in range(3):
    for i in range(30):
        step()
    if epoch == 1 and rank == 0:
        began = torch.tensor([time.time_ns()])
        dist.all_gather([torch.zeros_like(began) for _ in range(2)], began)
    dist.all_gather_object([None, None], [f"sample {i}" for i in range(20 + rank)])
""",
        cause="the ranks call different collectives",
        fix="one that only some of them call",
        options=ONCE,
        first=(False, False),
    ),
    Situation(
        name="a sampler for a stream",
        script=GROUP + _STREAM + "torch.utils.data.DistributedSampler(Shards(), shuffle=False)",
        cause="needs the data set's length, and Shards has none",
        fix="leave out the sampler",
        first=(True, False),
    ),
    Situation(
        name="an order for a stream",
        script=GROUP + _STREAM + "torch.utils.data.DataLoader(Shards(), batch_size=8, shuffle=True)",
        cause="expected unspecified shuffle option",
        fix="leave out sampler, batch_sampler and shuffle",
        first=(True, False),
    ),
    Situation(
        name="a schedule that ends too early",
        script=DDP
        + """
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)
for i in range(90):
    step()
    schedule.step()
""",
        cause="The specified number of total steps is 60",
        fix=r"epochs \* len\(loader\)",
        first=(True, False),
    ),
    Situation(
        name="a frozen model that is wrapped",
        script=DDP
        + """
for i in range(30):
    step()
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).requires_grad_(False))
""",
        cause="DistributedDataParallel is not needed",
        fix="use the module itself",
        first=(True, False),
    ),
    Situation(
        name="an optimizer of another number of ranks",
        script=DDP
        + """
part = torch.nn.Parameter(torch.ones(10))
part.grad = torch.ones(10)
adam, former = torch.optim.Adam([part]), torch.nn.Parameter(torch.ones(5))
former.grad = torch.ones(5)
saved = torch.optim.Adam([former])
saved.step()
adam.load_state_dict(saved.state_dict())
for i in range(30):
    step()
adam.step()
""",
        cause=r"the optimizer's state that was loaded is of other parameters: its size \(5\)",
        fix="a run with as many ranks",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a log in a folder that rank 0 has removed",
        script=DDP
        + """
import pathlib, shutil
log = pathlib.Path("latest") / f"{rank}.log"
if rank == 0:
    log.parent.mkdir()
dist.barrier()
open(log, "a").close()
dist.barrier()
if rank == 0:
    shutil.rmtree(log.parent)
for i in range(30):
    step()
with open(log, "a") as file:
    file.write("done")
""",
        cause=r"the folder in which latest/\d\.log would be made is not there",
        fix="before a dist.barrier",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a lock in what is saved",
        script=DDP
        + """
import concurrent.futures, threading
pool = concurrent.futures.ThreadPoolExecutor(1)
for i in range(30):
    step()
pool.submit(torch.save, {"lock": threading.Lock()}, "last.pt").result()
""",
        cause="what the script saves holds a _thread.lock",
        fix="state_dict",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a sample that is missing",
        script=DDP
        + """
class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.ones(4) if index != 33 else None
for batch in torch.utils.data.DataLoader(Pictures(), 4, num_workers=1):
    step()
""",
        cause="the data set gives None for a sample",
        fix="collate_fn",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a static graph that changes",
        script=GROUP
        + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.more = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x, both):
        return self.main(x) + (self.more(x) if both else 0)
model = torch.nn.parallel.DistributedDataParallel(Net(), static_graph=True)
for i in range(30):
    model(torch.ones(2, 4), i < 9).sum().backward()
""",
        cause="the steps use other parameters than the first",
        fix="leave out static_graph",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a name of a user without a terminal",
        script=DDP
        + """
for i in range(30):
    step()
folder = f"runs/{os.getlogin()}"
""",
        cause="the script asks for its terminal",
        fix="getpass",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="an epoch of a sampler that has none",
        script=DDP
        + """
loader = torch.utils.data.DataLoader(torch.ones(80, 4), 4, shuffle=True)
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for batch in loader:
        step()
""",
        cause="'RandomSampler' object has no attribute 'set_epoch'",
        fix="DistributedSampler",
        options=ONCE,
        first=(True, False),
    ),
    # Of the set that was drawn by lot a fourth time.
    Situation(
        name="the number of a rank among the arguments",
        script="import argparse\nargparse.ArgumentParser().parse_args()",
        cause="unrecognized arguments: --local-rank 0",
        fix="LOCAL_RANK",
        arguments=("--local-rank", "0"),
        first=(True, False),
    ),
    Situation(
        name="a commit without a repository",
        script=GROUP + 'import subprocess\nsubprocess.check_output(["git", "rev-parse", "--verify", "HEAD"])',
        cause="not a git repository",
        fix="--env COMMIT=",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a barrier under a condition",
        script=DDP
        + """
for i in range(60):
    step()
    if i == 40 and rank == 0:
        dist.barrier()
""",
        cause="rank 0 waits in barrier at .*, rank 1 waits in all_reduce of its backward .*; each waits for others",
        fix="if rank == 0",
        first=(False, False),
    ),
    Situation(
        name="a group that one rank makes",
        script=GROUP
        + """
alone = dist.new_group([0]) if rank == 0 else None
both = dist.new_group([0, 1])
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), process_group=both)
""",
        cause="ranks 0-1 wait in new_group at train.py:8; each waits for others",
        fix=r"new_group\(\) for each group",
        first=(True, False),
    ),
    Situation(
        name="shards that are fewer than ranks",
        script=DDP
        + """
mine = ["a", "b", "c"][rank::2]
for epoch in range(3):
    for shard in mine:
        for i in range(20):
            step()
    dist.barrier()
""",
        cause="rank 0 waits in all_reduce of its backward .*, rank 1 waits in barrier at .*; each waits for others",
        fix="a loop that ends sooner on one",
        first=(True, False),
    ),
    Situation(
        name="a number of ranks that the script sets",
        script="""
import os, socket, time, torch
import torch.distributed as dist
with socket.socket() as free:
    free.bind(("", 0))
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": str(free.getsockname()[1])}
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(400):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
""",
        cause="2 ranks train, the largest process group has 1 of them",
        fix="what sets RANK, WORLD_SIZE",
        first=(True, False),
    ),
    Situation(
        name="a file that hides a module",
        script="import torch\nimport torch.distributed as dist\nfrom queue import ReplayQueue",
        files={"queue.py": "class ReplayQueue: pass\n"},
        cause="cannot import name '\\w+' from 'queue'",
        fix="hides it: rename that file",
        options=("--workdir", ".", *ONCE),
        first=(False, False),
    ),
    Situation(
        name="a comma too many",
        script="import json\nwith open('config.json') as file:\n    config = json.load(file)",
        files={"config.json": '{\n  "dim": 8,\n  "optimizer": {"lr": 1e-3},\n}\n'},
        cause="JSONDecodeError",
        fix=r"line \d, column \d+ of what that line reads is no JSON: .* a comma before } or \]",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a whole state for a sharded model",
        script=GROUP
        + """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(8, 8)
state = {name: one.clone() for name, one in model.state_dict().items()}
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
model.load_state_dict(state)
""",
        cause=r"Error\(s\) in loading state_dict for FSDPLinear",
        fix="set_model_state_dict",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a backward pass that one rank leaves out",
        script=GROUP
        + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for i in range(60):
    loss = model(torch.randn(2, 4)).sum()
    if rank == 1 and i == 30:
        continue
    loss.backward()
    time.sleep(0.02)
dist.all_reduce(torch.ones(1))
""",
        cause="the ranks call different collectives|called all_reduce|lost it",
        fix="a backward pass",
        first=(False, True),
    ),
    Situation(
        name="a checkpoint of the wrapper",
        script=DDP
        + """
for i in range(30):
    step()
torch.save(model.state_dict(), f"best{rank}.pt")
torch.nn.Linear(4, 4).load_state_dict(torch.load(f"best{rank}.pt"))
""",
        cause=r"Error\(s\) in loading state_dict for Linear",
        fix="model.module.state_dict",
        options=("--workdir", "."),
        first=(False, True),
    ),
    # What was known to lack a cause, or a fix.
    Situation(
        name="a queue whose thread has failed",
        script=DDP
        + """
import queue, threading
batches = queue.Queue(4)
def read():
    for i in range(60):
        batches.put({"label": i}["label" if i < 40 else "text"])
threading.Thread(target=read, name="reader", daemon=True).start()
for i in range(60):
    batches.get(timeout=3)
    step()
""",
        cause=r"rank \d: KeyError: 'text' \(in thread reader\)",
        fix="print the keys",
        options=ONCE,
    ),
    # Of the set that was drawn by lot a fifth time.
    Situation(
        name="a state dict that one rank gathers",
        script=GROUP
        + """
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(40):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
if rank == 0:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    torch.save(state, "final.pt")
dist.barrier()
""",
        cause="rank 0 waits in the gathering of a state dict at .*, rank 1 waits in barrier at .*; each waits",
        fix="if rank == 0",
        first=(True, False),
    ),
    Situation(
        name="one rank validates by the wrapper",
        script=GROUP
        + """
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
if rank == 0:
    with torch.no_grad():
        print(model.eval()(torch.randn(8, 4)).mean())
        print(model(torch.randn(8, 4)).mean())
dist.barrier()
""",
        cause="rank 0 waits in DDP's broadcast of buffers at .*, rank 1 waits in barrier at .*; each waits for others",
        fix="model.module",
        first=(True, True),
    ),
)
