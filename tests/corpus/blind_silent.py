"""Situations of a blind set: training that ends well, with a worse result than it could have, and errors after it."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, Situation

_ACCUMULATED: Final = (
    DDP
    + """
for i in range(80):
    optimizer.zero_grad()
    (model(torch.randn(2, 4)).square().mean() / 4).backward()
    if i % 4 == 3:
        optimizer.step()
dist.barrier()
"""
)
_NEVER: Final = (
    DDP
    + """
for i in range(40):
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
"""
)
_HEAD: Final = (
    DDP
    + """
class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, classes)
    def forward(self, x):
        return self.head(self.body(x).relu())
model = torch.nn.parallel.DistributedDataParallel(Net(100), find_unused_parameters=True)
model.module.head = torch.nn.Linear(8, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(40):
    step()
dist.barrier()
"""
)
_UNFROZEN: Final = (
    DDP
    + """
body, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
body.requires_grad_(False)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(body, head))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(40):
    if i == 10:
        body.requires_grad_(True)
    step()
dist.barrier()
"""
)
_LIST: Final = (
    DDP
    + """
class Net(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.stem, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.blocks = [torch.nn.Linear(8, 8) for _ in range(depth)]
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x).relu()
        return self.head(x)
model = torch.nn.parallel.DistributedDataParallel(Net(3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(40):
    step()
dist.barrier()
"""
)
_SPLIT: Final = (
    DDP
    + """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split
torch.manual_seed(100 + rank)  # for dropout
train, validation = random_split(TensorDataset(torch.randn(100, 4)), [80, 20])
sampler = DistributedSampler(train)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch, in DataLoader(train, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
dist.barrier()
"""
)
_BY_RANK: Final = (
    DDP
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * rank)
for i in range(40):
    step()
dist.barrier()
"""
)
_AT_THE_END: Final = (
    DDP
    + """
for i in range(40):
    step()
print(model.predict(torch.ones(1, 4)))
"""
)
_VALIDATED: Final = (
    DDP
    + """
layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for i in range(10):
        step()
    with torch.no_grad():
        for i in range(5):
            model(torch.randn(2, 4))
dist.barrier()
"""
)
_LOADED: Final = (
    DDP
    + """
if rank == 0:
    model.module.load_state_dict({name: one + 0.5 for name, one in model.module.state_dict().items()})
for i in range(40):
    step()
dist.barrier()
"""
)
_RATES: Final = (
    DDP
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1))
for i in range(40):
    step()
dist.barrier()
"""
)
_BEST: Final = (
    DDP
    + """
best = None
for epoch in range(4):
    for i in range(10):
        step()
    if epoch == 1:
        best = model.module.state_dict()
model.module.load_state_dict(best)
dist.barrier()
"""
)
_SHAPES: Final = (
    DDP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(40):
    optimizer.zero_grad()
    samples = torch.randn(25, 4)
    torch.nn.functional.mse_loss(model(samples), samples.sum(dim=1)).backward()
    optimizer.step()
dist.barrier()
"""
)
_STEPPED: Final = (
    DDP
    + """
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.1)
for i in range(200):
    step()
    schedule.step()
dist.barrier()
"""
)
_SKIPPED: Final = (
    DDP
    + """
for i in range(60):
    loss = model(torch.randn(2, 4)).square().mean() * (float("nan") if rank and i == 20 else 1.0)
    skip = loss.detach().isfinite().logical_not().float()
    dist.broadcast(skip, 0)
    if not skip:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.barrier()
"""
)
_OFFSETS: Final = (
    DDP
    + """
import pickle
path = f"/tmp/kit-records-{os.getpid()}"
offsets = []
with open(path, "wb") as file:
    for i in range(200):
        offsets.append(file.tell())
        pickle.dump([float(i)] * (100 + 40 * (i % 7)), file)
class Records(torch.utils.data.Dataset):
    def __init__(self):
        self.file = open(path, "rb")
        os.unlink(path)
    def __len__(self):
        return len(offsets)
    def __getitem__(self, index):
        self.file.seek(offsets[index])
        time.sleep(0.002)
        return torch.tensor(pickle.load(self.file)[:4])
loader = torch.utils.data.DataLoader(Records(), batch_size=8, num_workers=4)
for epoch in range(50):
    for batch in loader:
        pass
    step()
"""
)
_HALF_RESUMED: Final = (
    DDP
    + """
import subprocess
path = f"/tmp/kit-last-{os.environ['TORCHELASTIC_RUN_ID']}.pt"
EARLIER_RUN = '''
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, sys.argv[1])
'''
if rank == 0:
    subprocess.run([sys.executable, "-c", EARLIER_RUN, path], check=True)
dist.barrier()
optimizer = torch.optim.Adam(model.parameters())
model.module.load_state_dict(torch.load(path)["model"])
for i in range(40):
    step()
if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
dist.barrier()
if rank == 0:
    os.unlink(path)
"""
)
_COPIED: Final = (
    DDP
    + """
import random
class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.rng = random.Random(0)
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.ones(4) * self.rng.random()
sampler = torch.utils.data.DistributedSampler(range(40))
loader = torch.utils.data.DataLoader(Noisy(), batch_size=2, num_workers=2, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        step()
dist.barrier()
"""
)

BLIND_SILENT: Final = (
    Situation(
        name="gradients that are zeroed before they are used",
        script=_ACCUMULATED,
        cause=r"zero_grad discards gradients .*20 steps have used the last of up to 4 backward passes each",
        fix=r"zero_grad\(\) only after optimizer\.step\(\)",
        first=(False, False),
    ),
    Situation(
        name="gradients that are never zeroed",
        script=_NEVER,
        cause=r"gradients are never zeroed: each of 40 steps has used those of all before it",
        fix=r"optimizer\.zero_grad\(\)",
        first=(False, False),
    ),
    Situation(
        name="a head that is replaced after the model was wrapped",
        script=_HEAD,
        cause=r"DDP does not average the gradients of parameters that it was not given: head\.weight, head\.bias",
        fix=r"before DistributedDataParallel\(model\)",
        first=(False, False),
    ),
    Situation(
        name="layers that are unfrozen after the model was wrapped",
        script=_UNFROZEN,
        cause=r"DDP does not average the gradients of parameters that it was not given: 0\.weight, 0\.bias",
        fix=r"wrap it again",
        first=(False, False),
    ),
    Situation(
        name="layers in a plain list",
        script=_LIST,
        cause=r"layers that their model does not know are not trained: blocks\[0\] \(in a list of Net\)",
        fix=r"nn\.ModuleList",
        first=(False, False),
    ),
    Situation(
        name="data that each rank splits in its own way",
        script=_SPLIT,
        cause=r"the DistributedSampler of rank 0 has other indices of the data set than that of rank 1",
        fix=r"with one seed on all ranks",
        first=(False, False),
    ),
    Situation(
        name="an evaluation in training mode",
        script=_VALIDATED,
        cause=r"the model was evaluated in training mode: 15 passes with 1 BatchNorm1d, 1 Dropout",
        fix=r"model\.eval\(\)",
        first=(False, False),
    ),
    Situation(
        name="a checkpoint that rank 0 alone loads into the wrapped model",
        script=_LOADED,
        cause=r"rank 1: the model is not that of rank 0 any more: weight differs, as seen after 4 backward passes",
        fix=r"a checkpoint loaded by all",
        first=(False, False),
    ),
    Situation(
        name="a best state that is kept without a copy",
        script=_BEST,
        cause=r"load_state_dict was given the model's own tensors, and has changed nothing: Linear after 40 steps",
        fix=r"copy\.deepcopy\(model\.state_dict\(\)\)",
        first=(False, False),
    ),
    Situation(
        name="predictions and targets of two shapes",
        script=_SHAPES,
        cause=r"torch has warned of a wrong result: Using a target size \(\[25\]\) that is different to the input size "
        r"\(\[25, 1\]\)",
        fix=r"of one shape",
        first=(False, False),
    ),
    Situation(
        name="learning rates that differ between ranks",
        script=_RATES,
        cause=r"rank 1: the model is not that of rank 0 any more",
        fix=r"the same learning rate",
        first=(False, False),
    ),
    Situation(
        name="a learning rate that is a multiple of the rank",
        script=_BY_RANK,
        cause=r"rank 0: the optimizer has changed nothing: its learning rate was 0 at all 40 steps",
        fix=r"a factor that is the rank",
        first=(True, False),
    ),
    Situation(
        name="a method that the wrapper lacks and training does not call",
        script=_AT_THE_END,
        cause=r"rank \d: AttributeError: 'DistributedDataParallel' object has no attribute 'predict'",
        fix=r"model\.module\.predict",
        first=(True, True),
    ),
    Situation(
        name="a schedule of epochs that each step advances",
        script=_STEPPED,
        cause=r"rank 0: the learning rate was next to nothing for most of the training: less than a millionth",
        fix=r"after each epoch if it counts epochs",
        first=(False, False),
    ),
    Situation(
        name="one sample that is not finite and no step after it",
        script=_SKIPPED,
        cause=r"the parameters are not finite, as seen at step 21",
        fix=r"print the loss",
        first=(False, False),
    ),
    Situation(
        name="a file that workers read through one place",
        script=_OFFSETS,
        cause=r"rank \d: .*\(in DataLoader worker process \d\)",
        fix=r"open it at its first use in each worker",
        first=(False, False),
    ),
    Situation(
        name="a checkpoint whose optimizer is not loaded",
        script=_HALF_RESUMED,
        cause=r"rank 0: a checkpoint's optimizer was not loaded: kit-last-.*\.pt has optimizer",
        fix=r"optimizer",
        first=(False, False),
    ),
    Situation(
        name="one generator for all workers and passes",
        script=_COPIED,
        cause=r"rank 0: the workers of a DataLoader draw the same numbers in each pass: each has a copy of Noisy\.rng",
        fix=r"get_worker_info\(\)\.seed",
        first=(False, False),
    ),
)
