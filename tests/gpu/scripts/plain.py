"""A plain PyTorch script: mixed precision in float16 with a GradScaler, compiled, with its own checkpoints.

python plain.py OUTPUT [--compile] [--stuck STEP]
"""

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("output", type=Path)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--stuck", type=int, default=0, help="after this step, once, the GPU never answers again")
parser.add_argument("--killed", type=int, default=0, help="after this step, once, the process is killed")
args = parser.parse_args()

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)).to(device))
step_model = torch.compile(model) if args.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=256.0)  # no step overflows
checkpoint, first = args.output / "checkpoint.pt", 0
if checkpoint.exists():
    state = torch.load(checkpoint, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    first = state["step"]
    print(f"resumed after step {first}", flush=True)


def once(name: str) -> bool:
    """Whether this has not happened in an earlier process."""
    marker = args.output / name
    new = not marker.exists()
    marker.touch()
    return new


for step in range(first + 1, 201):
    inputs = torch.randn(128, 64, generator=torch.Generator().manual_seed(step)).to(device)
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = (step_model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 0:
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "scaler": scaler}
        saved = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**saved, "step": step}, args.output / "scratch.pt")
        (args.output / "scratch.pt").replace(checkpoint)
    if step == args.killed and once("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if step == args.stuck and once("stuck"):
        torch.cuda._sleep(1 << 50)
        torch.cuda.synchronize()
print(f"loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
