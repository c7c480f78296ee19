"""Trains by a loop of its own, in one round after another, with ``toy``'s arguments.

The rate of learning falls after each epoch, or with EACH_STEP after each step, once that is counted. With BATCHNORM the
model has such a layer; with FIT it is fit()'s loop. DIES is a file: once, the second rank writes it and dies after the
last update of the first epoch, before it has told the others its loss; or, with LOADS, at the first step of the second
epoch, while the others wait so many seconds for their samples.
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


def die_once(file: Path) -> None:
    if not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_samples(seconds: float) -> None:
    """As for a data loader's workers, which start anew with each epoch."""
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
                    if "LOADS" in os.environ and run.steps_done == data.order.steps_per_epoch:
                        if "DIES" in os.environ and world.rank == 1:
                            die_once(Path(os.environ["DIES"]))
                        wait_for_samples(float(os.environ["LOADS"]))
                    record.add_batch(ids)
                    time.sleep(args.step_time)
                    loss = functional.mse_loss(parallel(inputs), targets) * batch.weight
                    loss.backward()
                    optimizer.step()
                    last = run.steps_done == data.order.steps_per_epoch - 1
                    if "DIES" in os.environ and "LOADS" not in os.environ and last and world.rank == 1:
                        die_once(Path(os.environ["DIES"]))
                    run.step(loss)
                    optimizer.zero_grad()
                    if each_step:
                        scheduler.step()
                if not each_step:
                    scheduler.step()
                world.print(f"epoch {epoch} has ended at a rate of {scheduler.get_last_lr()[0]:.6f}")

        if "FIT" in os.environ:
            loss, epochs = slow_loss(args.step_time, record), args.total_epochs
            Training(world, model, optimizer, loss, data, epochs=epochs, on_step=record.write).fit()
            return
        on_step = observer(args, world, record)
        run_rounds(world, train, on_step=on_step, model=model, optimizer=optimizer, scheduler=scheduler, data=data)


main()
