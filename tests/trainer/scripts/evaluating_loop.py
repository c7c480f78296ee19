"""Trains by a loop that evaluates every few steps, on all ranks, with ``toy``'s arguments.

Its rate of learning moves with each step, and its gradients are halved by a hook; with FIT it is fit()'s loop. DIES is
a file: once, the second rank writes it and dies in an evaluation.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from kittrain import Data, Run, Training, join, run_rounds
from kittrain.workloads.toy import Record, observer, options, random_samples, slow_loss

EVALUATE_EVERY, DIES_AT = 5, 15


def main() -> None:
    """Train."""
    args = options().parse_args(sys.argv[1:])
    with join(seed=args.seed) as world:
        model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=1000)
        data = Data(random_samples(args.samples), batch=args.batch_size, seed=args.seed)
        record = Record(args.record, world)

        def evaluate(step: int) -> dict[str, float]:
            model.eval()
            torch.set_grad_enabled(False)
            value = model(torch.ones(2, 20)).mean()
            if "DIES" in os.environ and world.rank == 1 and step == DIES_AT:
                file = Path(os.environ["DIES"])
                if not file.exists():
                    file.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(value)
            torch.set_grad_enabled(True)
            model.train()
            world.print(f"evaluated after step {step}")
            return {"value": value.item()}

        def train(run: Run) -> None:
            parallel = DistributedDataParallel(model)
            model.get_parameter("0.weight").register_hook(lambda gradient: gradient * 0.5)
            for _ in run.epochs(args.total_epochs):
                for batch in run.batches(data):
                    inputs, targets, ids = batch.samples
                    record.add_batch(ids)
                    time.sleep(args.step_time)
                    loss = functional.mse_loss(parallel(inputs), targets) * batch.weight
                    loss.backward()
                    optimizer.step()
                    run.step(loss)
                    optimizer.zero_grad()
                    scheduler.step()
                    if run.steps_done % EVALUATE_EVERY == 0:
                        evaluate(run.steps_done)

        on_step = observer(args, world, record)
        if "FIT" not in os.environ:
            run_rounds(world, train, on_step=on_step, model=model, optimizer=optimizer, scheduler=scheduler, data=data)
            return
        model.get_parameter("0.weight").register_hook(lambda gradient: gradient * 0.5)
        Training(
            world,
            model,
            optimizer,
            slow_loss(args.step_time, record),
            data,
            epochs=args.total_epochs,
            scheduler=scheduler,
            on_step=on_step,
            on_evaluate=evaluate,
            evaluate_every=EVALUATE_EVERY,
        ).fit()


main()
