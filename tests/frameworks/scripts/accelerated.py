"""A loop with Accelerate, dropout and random weights; the lines for the kit are marked."""

import argparse
import os
import signal

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from kittrain import Run, attach
from kittrain.integrations.accelerate import ResumableLoader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--out", required=True)
    flags = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=2)
    torch.manual_seed(1 + accelerator.process_index)
    generator = torch.Generator().manual_seed(0)
    dataset = TensorDataset(*(torch.rand(48, width, generator=generator) for width in (5, 1)))
    loader = DataLoader(dataset, batch_size=3, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    batches = ResumableLoader(loader)  # for the kit
    with Run(attach(), model=model, optimizer=optimizer, scheduler=scheduler) as run:  # for the kit
        for _ in run.epochs(4):  # for the kit
            for inputs, targets in run.batches(batches):  # for the kit
                with accelerator.accumulate(model):
                    loss = functional.mse_loss(model(inputs), targets)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    if run.steps_done + 1 == flags.stop_at and not accelerator.is_main_process:
                        os.kill(os.getpid(), signal.SIGTERM)
                    run.step(loss, samples=2 * len(inputs))  # for the kit
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), flags.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
