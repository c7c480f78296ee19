"""Trains by a loop of its own, in one round after another, with ``toy``'s arguments.

The rate of learning falls after each epoch. With BATCHNORM the model has such a layer; with FIT it is fit()'s loop.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from kittrain import Data, Run, Training, join, run_rounds
from kittrain.workloads.toy import Record, options, random_samples, slow_loss


def main() -> None:
    """Train."""
    args = options().parse_args(sys.argv[1:])
    with join(seed=args.seed) as world:
        torch.manual_seed(args.seed)
        between = nn.BatchNorm1d(8) if "BATCHNORM" in os.environ else nn.Tanh()
        model = nn.Sequential(nn.Linear(20, 8), between, nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        data = Data(random_samples(args.samples), batch=args.batch_size, seed=args.seed)
        record = Record(args.record, world)

        def train(run: Run) -> None:
            parallel = DistributedDataParallel(model) if world.size > 1 else model
            for epoch in run.epochs(args.total_epochs):
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
                world.print(f"epoch {epoch} has ended at a rate of {scheduler.get_last_lr()[0]:.6f}")

        if "FIT" in os.environ:
            loss, epochs = slow_loss(args.step_time, record), args.total_epochs
            Training(world, model, optimizer, loss, data, epochs=epochs, on_step=record.write).fit()
            return
        run_rounds(world, train, on_step=record.write, model=model, optimizer=optimizer, scheduler=scheduler, data=data)


main()
