"""A script that knows nothing of kitctl: DDP, and a file at its first step, for which ``submit`` waits."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
record = Path("/snapshots/record", f"rank-{os.environ['RANK']}.jsonl")
record.parent.mkdir(exist_ok=True)
for step in range(1000):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    with record.open("a") as file:
        file.write(f'{{"step": {step}}}\n')
    time.sleep(0.2)
