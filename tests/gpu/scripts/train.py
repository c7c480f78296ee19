"""Trains a small model on the GPU by the trainer's loop, and records each step and each process.

python -m tests.gpu.scripts.train RECORDS [--epochs N] [--occupy SHARE] [--normalize] [--fail HOW@STEP]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from kittrain import Data, Step, Training, World, join

SAMPLES, BATCH, WIDTH, CLASSES = 2048, 32, 64, 10


def fail_in_a_kernel() -> None:
    """Use an index that is out of bounds, so that an assertion in the kernel fails."""
    table = torch.zeros(4, device="cuda")
    table[torch.tensor([9], device="cuda")].sum().item()


def fail_for_memory() -> None:
    """Allocate more than any GPU has."""
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")


FAILURES: Mapping[str, Callable[[], None]] = {"kernel": fail_in_a_kernel, "memory": fail_for_memory}


class Records:
    """One process's file, with one JSON object per line."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("w", encoding="utf-8", buffering=1)

    def write(self, what: str, **facts: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps({"what": what, "time": time.time(), "pid": os.getpid(), **facts}) + "\n")


def build(world: World, *, normalize: bool) -> nn.Module:
    """Two layers and dropout, so that the device's generator matters."""
    layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.1), nn.Linear(WIDTH, CLASSES)]
    if not normalize:
        return nn.Sequential(*layers)
    return world.synchronize_batchnorm(nn.Sequential(layers[0], nn.BatchNorm1d(WIDTH), *layers[1:]))


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The mean over the batch's samples."""
    inputs, targets = batch
    return cross_entropy(model(inputs), targets)


def dataset() -> TensorDataset:
    """Random samples, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
    return TensorDataset(inputs, torch.randint(0, CLASSES, (SAMPLES,), generator=generator))


def facts(world: World) -> dict[str, Any]:
    """The properties of a joined process that tests check."""
    backend = dist.get_backend() if dist.is_initialized() else ""
    return {
        "rank": world.rank,
        "backend": backend,
        "device": str(world.device),
        "warm": b"kittrain.agent.processes.worker" not in Path("/proc/self/cmdline").read_bytes(),
        "env": {name: text for name, text in os.environ.items() if name.startswith(("TORCH_NCCL", "CUDA_"))},
        "trace": nccl_trace_bytes() if backend == "nccl" else 0,
    }


def nccl_trace_bytes() -> int:
    """The size of NCCL's flight recorder dump; only builds with NCCL have the function."""
    dump: Callable[[], bytes] = vars(torch._C._distributed_c10d)["_dump_nccl_trace"]
    return len(dump())


def main() -> None:
    """Train to the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--occupy", type=float, default=0.0, help="share of the device's memory to hold")
    parser.add_argument("--normalize", action="store_true")
    parser.add_argument("--fail", default="kernel@0", help="how, and after which step")
    args = parser.parse_args()
    how, _, moment = args.fail.partition("@")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    records = Records(args.records)
    with join(seed=0) as world:
        whole = torch.cuda.get_device_properties(world.device).total_memory if args.occupy else 0
        held = torch.empty(int(args.occupy * whole), dtype=torch.uint8, device=world.device)
        records.write("joined", held=held.numel(), **facts(world))
        model = build(world, normalize=args.normalize).to(world.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def on_step(step: Step) -> None:
            records.write("step", step=step.number, generation=step.generation, loss=step.loss, rank=world.rank)
            if step.number == int(moment):
                FAILURES[how]()

        data = Data(dataset(), batch=BATCH, seed=0)
        Training(world, model, optimizer, loss, data, epochs=args.epochs, on_step=on_step).fit()
        records.write("finished", **facts(world))


if __name__ == "__main__":
    main()
