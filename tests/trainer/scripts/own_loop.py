"""Trains by a loop of its own, in one round after another, with ``toy``'s arguments.

The rate of learning falls after each epoch, or with EACH_STEP after each step, once that is counted. With BATCHNORM the
model has such a layer; with FIT it is fit()'s loop. The samples of the second epoch's first step take LOADS seconds.
DIES_AT is a point where the second rank dies, once: it writes the file DIES first.
"""

import os
import queue
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from kittrain import Data, Run, Training, join, run_rounds
from kittrain.workloads.toy import Record, observer, options, random_samples, slow_loss


def reached(point: str, rank: int) -> None:
    if point == os.environ.get("DIES_AT") and rank == 1 and not (file := Path(os.environ["DIES"])).exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_samples(seconds: float) -> None:
    """As for a data loader's workers, which start anew with each epoch."""
    if seconds == 0:
        return
    with suppress(queue.Empty):
        queue.Queue[object]().get(timeout=seconds)


def main() -> None:
    """Train."""
    args = options().parse_args(sys.argv[1:])
    with join(seed=args.seed) as world:
        torch.manual_seed(args.seed)
        between = nn.BatchNorm1d(8) if "BATCHNORM" in os.environ else nn.Tanh()
        model = nn.Sequential(nn.Linear(20, 8), between, nn.Linear(8, 1))
        each_step = "EACH_STEP" in os.environ
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99 if each_step else 0.9)
        data = Data(random_samples(args.samples), batch=args.batch_size, seed=args.seed)
        record = Record(args.record, world)

        def train(run: Run) -> None:
            parallel = DistributedDataParallel(model) if world.size > 1 else model
            for epoch in run.epochs(args.total_epochs):
                for batch in run.batches(data):
                    inputs, targets, ids = batch.samples
                    step = run.steps_done + 1
                    reached(f"samples of step {step}", world.rank)
                    wait_for_samples(float(os.environ.get("LOADS", "0")) * (step == data.order.steps_per_epoch + 1))
                    record.add_batch(ids)
                    time.sleep(args.step_time)
                    loss = functional.mse_loss(parallel(inputs), targets) * batch.weight
                    loss.backward()
                    optimizer.step()
                    reached(f"update of step {step}", world.rank)
                    run.step(loss)
                    optimizer.zero_grad()
                    if each_step:
                        scheduler.step()
                if not each_step:
                    scheduler.step()
                world.print(f"epoch {epoch} has ended at a rate of {scheduler.get_last_lr()[0]:.6f}")

            reached("end", world.rank)

        if "FIT" in os.environ:
            loss, epochs = slow_loss(args.step_time, record), args.total_epochs
            Training(world, model, optimizer, loss, data, epochs=epochs, on_step=record.write).fit()
            return
        on_step = observer(args, world, record)
        run_rounds(world, train, on_step=on_step, model=model, optimizer=optimizer, scheduler=scheduler, data=data)


main()
