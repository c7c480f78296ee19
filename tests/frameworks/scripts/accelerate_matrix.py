"""A loop with Accelerate in a ``Run``, as a matrix of interruptions."""

import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from kittrain import Run, attach
from kittrain.integrations.accelerate import ResumableLoader
from tests.frameworks.scripts import matrix

EVENTS = ["batch", "backward", "step", "stepped", "epoch end", "after"]  # of the loop below


def train(config, interruption):
    os.environ["KIT_SNAPSHOTS_EVERY_STEPS"] = str(config["every"])
    accelerator = Accelerator(gradient_accumulation_steps=config["accumulate"])
    torch.manual_seed(1 + accelerator.process_index)
    generator = torch.Generator().manual_seed(0)
    dataset = TensorDataset(*(torch.rand(config["samples"], width, generator=generator) for width in (5, 1)))
    loader = DataLoader(dataset, batch_size=2, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    batches = ResumableLoader(loader)
    rows = interruption.rows
    with Run(attach(), model=model, optimizer=optimizer, scheduler=scheduler) as run:
        for epoch in run.epochs(2):
            for inputs, targets in run.batches(batches):
                interruption.at("batch", run.steps_done)
                with accelerator.accumulate(model):
                    loss = functional.mse_loss(model(inputs), targets)
                    accelerator.backward(loss)
                    interruption.at("backward", run.steps_done)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    interruption.at("step", run.steps_done)
                    run.step(loss, samples=len(inputs))
                    rows.add(f"{run.steps_done}: {loss.item()}")
                    interruption.at("stepped", run.steps_done)
            rows.add(f"epoch {epoch} ends after {run.steps_done}")
            interruption.at("epoch end", run.steps_done)
    interruption.at("after", run.steps_done)
    return [
        {
            "weights": matrix.digest(accelerator.unwrap_model(model).state_dict()),
            "rate": scheduler.get_last_lr(),
            "steps": run.steps_done,
            "rows": sorted(rows),
        }
    ]


if __name__ == "__main__":
    matrix.main(train)
