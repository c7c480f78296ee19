"""Situations of a blind set: state that is not what was meant, in a model's copy, a checkpoint, a store or a port."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_AVERAGE: Final = (
    GROUP
    + """
import copy
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
average = copy.deepcopy(net).eval()
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for i in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 4) * 3 + 5).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), net.parameters()):
            kept.lerp_(new, 0.05)
with torch.no_grad():
    print("error of the average", average(torch.randn(8, 4) * 3 + 5).square().mean().item())
dist.barrier()
"""
)
_REPLACED: Final = (
    GROUP
    + """
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 10))
optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
net[2] = torch.nn.Linear(4, 3)
model = torch.nn.parallel.DistributedDataParallel(net)
for i in range(60):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    optimizer.step()
dist.barrier()
"""
)
_SCHEDULE: Final = (
    DDP
    + """
import copy
def begun():
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 80)
optimizer, schedule = begun()
for epoch in range(2):
    for i in range(40):
        step()
        schedule.step()
    saved = copy.deepcopy({"model": model.state_dict(), "schedule": schedule.state_dict()})
    optimizer, schedule = begun()  # as another run does
    model.load_state_dict(saved["model"])
    schedule.load_state_dict(saved["schedule"])
dist.barrier()
"""
)
_KEY: Final = (
    DDP
    + """
for i in range(30):
    step()
store = dist.distributed_c10d._get_default_store()
store.set(f"val/rank{rank}", "0.5")
print([store.get(f"val/rank_{other}") for other in range(dist.get_world_size())])
"""
)
_PORT: Final = (
    GROUP
    + """
store = dist.TCPStore("127.0.0.1", 23987, None, True, wait_for_workers=False)
store.set(f"progress/{rank}", "0")
time.sleep(2)
dist.barrier()
"""
)
_UNREAD: Final = (
    GROUP
    + """
import subprocess, sys
if rank == 0:
    tool = subprocess.Popen([sys.executable, "-c", "for i in range(9000): print('row', i)"], stdout=subprocess.PIPE)
    tool.wait()
    print(len(tool.stdout.read()), "bytes prepared")
dist.barrier()
"""
)
_CONTINUED: Final = _SCHEDULE.replace(
    '"schedule": schedule', '"optimizer": optimizer.state_dict(), "schedule": schedule'
).replace("    schedule.load", '    optimizer.load_state_dict(saved["optimizer"])\n    schedule.load')
_UPDATED: Final = _AVERAGE.replace(
    "average.parameters(), net.parameters()", "average.buffers(), net.buffers()"
).replace("kept.lerp_(new, 0.05)", "kept.copy_(new)")

BLIND_STATE: Final = (
    Situation(
        name="an average of a model without the numbers of its batch norms",
        script=_AVERAGE,
        cause=r"rank 0: a model was evaluated whose batch norms have seen no batch: 1 BatchNorm1d of Sequential",
        fix=r"copy buffers along with parameters",
        first=(False, False),
    ),
    Situation(
        name="a layer that is replaced after the optimizer was made",
        script=_REPLACED,
        cause=r"rank 0: parameters that get gradients are in no optimizer, .*: 2\.weight, 2\.bias",
        fix=r"make the optimizer after the model has all its layers",
        first=(False, False),
    ),
    Situation(
        name="a schedule that is resumed without its optimizer",
        script=_SCHEDULE,
        cause=r"rank 0: a learning rate schedule was resumed, and its optimizer was not: Cosine\w+ at its step 40",
        fix=r"save and load the optimizer's state_dict",
        first=(False, False),
    ),
    Situation(
        name="a key of the store that no rank sets",
        script=_KEY,
        cause=r"ranks 0-1 wait in store\.get at train\.py:\d+.*; each waits for others",
        fix=r"no rank sets that key",
        first=(False, False),
    ),
    Situation(
        name="a store of its own that each rank serves at one port",
        script=_PORT,
        options=ONCE,
        cause=r"rank \d: DistNetworkError: .*23987",
        fix=r"one rank alone is_master",
        first=(False, False),
    ),
    Situation(
        name="a process whose output nobody reads",
        script=_UNREAD,
        cause=r"rank 0 waits for a process whose output nobody reads at train\.py:\d+, rank 1 waits in barrier",
        fix=r"read what it prints while it runs",
        first=(False, False),
    ),
    Situation(name="healthy and resumes schedule and optimizer", script=_CONTINUED, healthy=True, first=(True, True)),
    Situation(name="healthy with an average that has its buffers", script=_UPDATED, healthy=True, first=(True, True)),
)
