"""A training script as tutorials have it: PyTorch alone, a process a GPU, and nothing of this project."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

backend = "nccl" if torch.cuda.is_available() else "gloo"
dist.init_process_group(backend)
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if backend == "nccl" else "cpu")
model = DistributedDataParallel(nn.Linear(8, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10_000):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 8, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    if step == 0 and dist.get_rank() == 0:
        print(f"first step of {dist.get_world_size()} ranks", flush=True)
dist.destroy_process_group()
