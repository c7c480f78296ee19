"""Submits a training function with Kubeflow's SDK, from an environment that has it; prints the TrainJob's name.

    python sdk_job.py NAMESPACE RUNTIME IMAGE

The function is one as people write it for Kubeflow: it knows nothing of kitctl.
"""

from __future__ import annotations

# ruff: noqa: PLC0415 - a function that the SDK sends imports what it uses
import sys

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient


def train(steps: int, pause: float) -> None:
    """Train a small model; rank 0 saves it every ten steps."""
    import time
    from pathlib import Path

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path, first = Path("/snapshots/model.pt"), 0
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        first = saved["step"]
        print(f"resuming after step {first}", flush=True)
    for step in range(first + 1, steps + 1):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
        if step % 10 == 0:
            if dist.get_rank() == 0:
                new = path.with_suffix(".new")
                torch.save({"model": model.state_dict(), "step": step}, new)
                new.replace(path)
            dist.barrier()
        time.sleep(pause)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} has taken step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    namespace, runtime, image = sys.argv[1:]
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace))
    trainer = CustomTrainer(func=train, func_args={"steps": 100, "pause": 0.2}, image=image, num_nodes=2)
    print(client.train(runtime=client.get_runtime(runtime), trainer=trainer))
