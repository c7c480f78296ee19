"""A loop of its own, in which rank 1 needs longer for each forward pass: ``own_loop.py RECORDS STEPS``.

Rank 0 alone evaluates after 50 steps. Each rank writes a line ``<what> <begin> <seconds>`` for each forward pass and
evaluation, to a file of its own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

records, steps = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
with (records / f"rank-{rank}-{time.time_ns()}").open("a") as file:
    for step in range(1, steps + 1):
        begin = time.time()
        optimizer.zero_grad()
        time.sleep(0.15 if rank else 0.05)
        found = model(torch.ones(2, 4)).sum()
        file.write(f"forward {begin} {time.time() - begin}\n")
        file.flush()
        found.backward()
        optimizer.step()
        if rank == 0 and step == 50:
            begin = time.time()
            model.eval()
            with torch.no_grad():
                time.sleep(8.0)
                model.module(torch.ones(2, 4))
            model.train()
            file.write(f"evaluation {begin} {time.time() - begin}\n")
dist.destroy_process_group()
