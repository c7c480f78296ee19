"""A small module in Lightning Trainers, as a matrix of interruptions."""

import logging
import os
import warnings

import lightning
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from kittrain.integrations.lightning import KitCallback
from tests.frameworks.scripts import matrix

EVENTS = [name for name in dir(Callback) if name.startswith(("on_train", "on_validation", "on_before", "on_after"))]


class Points(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, count, seed, noise=0.1):
        self.noise = noise
        generator = torch.Generator().manual_seed(seed)
        self.inputs, self.targets = (torch.rand(count, width, generator=generator) for width in (5, 1))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        noise = self.noise * torch.rand(())  # augmentation
        return self.inputs[index] + noise, self.targets[index]


class Network(lightning.LightningModule):
    def __init__(self, config, part, rows):
        super().__init__()
        self.config = config
        self.part = part
        self.rows = rows
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))

    def note(self, text):
        self.rows.add(f"{self.part}: {text}")

    def training_step(self, batch, _index):
        loss = functional.mse_loss(self.layers(batch[0]), batch[1])
        self.note(f"train {self.global_step} {loss.item()}")
        return loss

    def validation_step(self, batch, _index):
        error = functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("error", error, sync_dist=True)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.note(f"validation {self.global_step} {self.trainer.callback_metrics['error'].item()}")

    def on_train_epoch_start(self):
        self.note(f"epoch {self.current_epoch} {torch.rand(()).item()}")

    def on_train_epoch_end(self):
        self.note(f"end of epoch {self.current_epoch}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.config.get("rate", 0.05))
        if self.config.get("plateau"):
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "error"}}
        steps = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
        interval = self.config.get("interval", "step")
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": steps, "interval": interval}}


class Interrupting(Callback):
    def __init__(self, interruption, part):
        self.interruption, self.part = interruption, part


for event in EVENTS:

    def at(self, trainer, *_, event=event, **__):
        if not trainer.sanity_checking:
            self.interruption.at(event, trainer.global_step, self.part)

    setattr(Interrupting, event, at)


class Counting(Callback):
    """A callback of the script's own with a state."""

    def __init__(self):
        self.counts = {}

    def count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1

    def on_train_batch_start(self, *_):
        self.count("batches started")

    def on_train_batch_end(self, *_):
        self.count("batches")

    def on_train_epoch_start(self, *_):
        self.count("epochs started")

    def on_train_epoch_end(self, *_):
        self.count("epochs")

    def on_validation_end(self, trainer, *_):
        if not trainer.sanity_checking:
            self.count("validations")

    def state_dict(self):
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state):
        self.counts = dict(state["counts"])


def train(config, interruption):
    os.environ["KIT_SNAPSHOTS_EVERY_STEPS"] = str(config.get("every", 2))
    return [fit(config, interruption, part) for part in range(config.get("parts", 1))]


def fit(config, interruption, part):
    lightning.seed_everything(1 + part)
    best = ModelCheckpoint("best", f"{part}-{{epoch}}-{{step}}", monitor="error", save_last=True)
    early = [EarlyStopping("error", patience=config["patience"])] if "patience" in config else []
    counting = Counting()
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*early, counting, Interrupting(interruption, part), best],
        **config["arguments"],
    )
    trainer.callbacks.append(KitCallback(trainer))
    torch.manual_seed(100 * part + trainer.global_rank)
    module = Network(config, part, interruption.rows)
    workers = config.get("workers", 0)  # what they draw differs after a resume
    points = Points(config.get("samples", 36), 1, noise=0.0 if workers else 0.1)
    loader = DataLoader(points, batch_size=2, shuffle=True, num_workers=workers)
    trainer.fit(module, loader, DataLoader(Points(9, 2), batch_size=3))
    interruption.at("after", trainer.global_step, part)
    kept = torch.load(best.best_model_path, weights_only=False)["state_dict"]
    loops = trainer.fit_loop
    return {
        "weights": matrix.digest(module.state_dict()),
        "random": matrix.random_state(),
        "rate": trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else None,
        "best": [best.best_model_score.item(), matrix.digest(kept)],
        "counts": counting.counts,
        "metrics": {name: value.item() for name, value in trainer.callback_metrics.items()},
        "steps": [trainer.global_step, trainer.current_epoch, loops.epoch_loop._batches_that_stepped],
        "stopped": trainer.should_stop,
        "rows": sorted(row for row in interruption.rows if row.startswith(f"{part}:")),
        "phase": matrix.phase(),
    }


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    matrix.main(train)
