"""Trains a model that is sharded in two parts, with replicas (HSDP), with ``toy``'s arguments.

By a loop of its own, or by ``fit()`` with FIT. OPTIONS are names of what the model or the loop has besides.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

from kittrain import Data, Run, Training, join, run_rounds
from kittrain.workloads.toy import Record, options, random_samples, slow_loss

OPTIONS = os.environ.get("OPTIONS", "").split()
SHARDS = 2


def sharded(size: int) -> Any:
    """Its layers do not divide evenly."""
    layers = [nn.Linear(20, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 1)]
    if "tied" in OPTIONS:
        layers.insert(2, layers[2])
    if "frozen" in OPTIONS:
        layers[2].requires_grad_(requires_grad=False)
    if "batchnorm" in OPTIONS:
        layers.insert(1, nn.BatchNorm1d(7))
    model = nn.Sequential(*layers)
    if "compiled" in OPTIONS:
        model[2].compile()
    mesh = init_device_mesh("cpu", (size // SHARDS, SHARDS), mesh_dim_names=("replicate", "shard"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if "mixed" in OPTIONS else MixedPrecisionPolicy()
    settings: dict[str, Any] = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": "whole" not in OPTIONS}
    if "flat" not in OPTIONS:
        for layer in (layers[0], layers[2]):
            fully_shard(layer, **settings)
    return fully_shard(model, **settings)


def main(argv: Sequence[str] | None = None) -> None:
    """Train."""
    args = options().parse_args(argv)
    with join(seed=args.seed) as world:
        torch.manual_seed(args.seed)
        model = sharded(world.size)
        trained = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-2)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        data = Data(random_samples(args.samples), batch=args.batch_size, seed=args.seed)
        record = Record(args.record, world)
        norm = 0.1 if "clip" in OPTIONS else None
        parts = 2 if "accumulate" in OPTIONS else 1

        autocast = torch.bfloat16 if "autocast" in OPTIONS else None

        def loss_of(part: Sequence[Tensor]) -> Tensor:
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                return functional.mse_loss(model(part[0]).float(), part[1])

        def train(run: Run) -> None:
            for epoch in run.epochs(args.total_epochs):
                for batch in run.batches(data):
                    record.add_batch(batch.samples[2])
                    time.sleep(args.step_time)
                    for part in range(parts):
                        model.set_requires_gradient_sync(part == parts - 1)
                        samples = [one[part::parts] for one in batch.samples]
                        loss = loss_of(samples) * batch.weight / parts
                        loss.backward()
                    if norm:
                        nn.utils.clip_grad_norm_(model.parameters(), norm)
                    optimizer.step()
                    run.step(loss * parts)
                    optimizer.zero_grad()
                scheduler.step()
                world.print(f"epoch {epoch} has ended at a rate of {scheduler.get_last_lr()[0]:.6f}")

        if "FIT" in os.environ:
            Training(
                world,
                model,
                optimizer,
                slow_loss(args.step_time, record),
                data,
                epochs=args.total_epochs,
                max_grad_norm=norm,
                accumulate=parts,
                autocast=autocast,
                on_step=record.write,
            ).fit()
            return
        run_rounds(world, train, on_step=record.write, model=model, optimizer=optimizer, scheduler=scheduler, data=data)


if __name__ == "__main__":
    main()
