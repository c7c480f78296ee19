"""Trains a small convolutional network on handwritten digits: 1,797 images of 8x8 pixels.

    python -m kittrain.workloads.digits --epochs 5
    torchrun --nproc-per-node 2 -m kittrain.workloads.digits
    kitctl submit --nodes 3 -- -m kittrain.workloads.digits --epochs 5

The batches are the same for any number of ranks; without batch normalization, so is the loss curve.

The images are a part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C.
Kaynak (UCI Machine Learning Repository, 1998, CC BY 4.0): in ``digits.u8`` a byte for each of 64 pixels (0 to 16), then
one for the digit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, Training, evaluate, join

IMAGES: Final = files("kittrain.workloads") / "digits.u8"  # not next to this file, of which `kitctl init` makes a copy
TEST_EVERY: Final = 5  # every fifth image is for evaluation only


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the accuracy on the test images."""
    args = options().parse_args(argv)
    with join(seed=args.seed) as world:
        train, test = digits()
        model: nn.Module = network(batchnorm=args.batchnorm)
        if args.sync_batchnorm:
            model = world.synchronize_batchnorm(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
        data = Data(train, batch=args.batch_size, seed=args.seed)
        steps = args.epochs * data.order.steps_per_epoch
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        Training(
            world,
            model,
            optimizer,
            loss,
            data,
            epochs=args.epochs,
            scheduler=scheduler,
            on_epoch=lambda _: {"accuracy": evaluate(world, model, test, correct)},
        ).fit()
        accuracy = evaluate(world, model, test, correct)
        world.print(f"accuracy {100 * accuracy:.2f} % on {len(test)} test images")


def network(*, batchnorm: bool) -> nn.Module:
    """Two convolutions and a linear layer: images (n, 1, 8, 8) in, a score for each digit (n, 10) out."""

    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels) if batchnorm else nn.Identity()

    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1), norm(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1), norm(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 2 * 2, 10),
    )  # fmt: skip


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Mean cross-entropy."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def correct(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Whether each image is classified correctly, (n,) bool."""
    images, labels = batch
    scores: Tensor = model(images)
    return scores.argmax(dim=1) == labels


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and test images, always the same ones."""
    rows = torch.frombuffer(bytearray(IMAGES.read_bytes()), dtype=torch.uint8).reshape(-1, 65)
    images, labels = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()
    test = torch.arange(len(rows)) % TEST_EVERY == TEST_EVERY - 1
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser("digits", description="Train a network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05, help="initial learning rate; decays to 0")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the data order")
    parser.add_argument("--no-batchnorm", dest="batchnorm", action="store_false", help="same curve on any world")
    parser.add_argument("--sync-batchnorm", action="store_true", help="statistics over all ranks; needs GPUs")
    return parser


if __name__ == "__main__":
    main()
