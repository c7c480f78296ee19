"""A Lightning script with dropout and random weights; the line for kitctl is marked."""

import argparse
import os
import signal

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from kittrain.integrations.lightning import KitCallback


class Network(lightning.LightningModule):
    def __init__(self, flags):
        super().__init__()
        self.flags = flags
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.Dropout(flags.dropout), nn.Tanh(), nn.Linear(8, 1))

    def training_step(self, batch, _index):
        if self.global_step + 1 == self.flags.stop_at and self.global_rank == self.trainer.world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)  # the last rank gets it
        inputs, targets = batch
        return functional.mse_loss(self.layers(inputs), targets)

    def validation_step(self, batch, _index):
        inputs, targets = batch
        self.log("error", functional.mse_loss(self.layers(inputs), targets), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=16)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--out", required=True)
    flags = parser.parse_args()
    lightning.seed_everything(1)
    torch.manual_seed(1 + int(os.environ["RANK"]))
    generator = torch.Generator().manual_seed(0)
    dataset = TensorDataset(*(torch.rand(48, width, generator=generator) for width in (5, 1)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.callbacks.append(KitCallback(trainer))  # the line for kitctl
    module = Network(flags)
    loader = DataLoader(dataset, batch_size=flags.batch, shuffle=True, num_workers=flags.workers)
    trainer.fit(module, loader, DataLoader(dataset, batch_size=3))
    if trainer.is_global_zero:
        torch.save(module.state_dict(), flags.out)


if __name__ == "__main__":
    main()
