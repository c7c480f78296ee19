"""Trains a convolutional network on MNIST or Fashion-MNIST: 60,000 images of 28x28 pixels, in 10 classes.

    torchrun --nproc-per-node 2 -m kittrain.workloads.mnist --epochs 2
    kitctl submit --nodes 3 --gpus-per-node 4 -m kittrain.workloads.mnist --dataset FashionMNIST

The images are read from ``--data``, from Debian's package dataset-fashion-mnist, or downloaded once a node. On GPUs,
batch normalization uses statistics of the global batch, and the network computes in bfloat16.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from kittrain import Data, Training, evaluate, join
from kittrain.workloads import mnist_files
from kittrain.workloads.schedule import warmup_and_decay


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the accuracy on the test images."""
    args = options().parse_args(argv)
    with join(seed=args.seed) as world:
        try:
            train, test = mnist_files.load(args.dataset, args.data, args.mirror)
        except mnist_files.ImagesNotFoundError as error:
            raise SystemExit(f"mnist: {error}") from error
        on_gpu = world.device.type == "cuda"
        model: nn.Module = ConvNet(autocast=on_gpu if args.autocast is None else args.autocast)
        if on_gpu:
            model = world.synchronize_batchnorm(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
        data = Data(train, batch=args.batch_size, seed=args.seed)
        steps = args.epochs * data.order.steps_per_epoch
        Training(
            world,
            model,
            optimizer,
            loss,
            data,
            epochs=args.epochs,
            scheduler=warmup_and_decay(optimizer, steps=steps),
            on_epoch=lambda _: {"accuracy": evaluate(world, model, test, correct)},
        ).fit()
        accuracy = evaluate(world, model, test, correct)
        world.print(f"accuracy {100 * accuracy:.2f} % on {len(test)} test images of {args.dataset}")


class ConvNet(nn.Module):
    """Images (n, 1, 28, 28) uint8 in, a score for each class (n, 10) out.

    Args:
        autocast: compute in bfloat16 where its precision is enough.
    """

    def __init__(self, *, autocast: bool = False) -> None:
        super().__init__()
        self._autocast = autocast
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """The scores, float32."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self._autocast):
            scores: Tensor = self.layers(images.float() / 255)
        return scores.float()


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Mean cross-entropy."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def correct(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Whether each image is classified correctly, (n,) bool."""
    images, labels = batch
    scores: Tensor = model(images)
    return scores.argmax(dim=1) == labels


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser("mnist", description="Train a network on MNIST or Fashion-MNIST.")
    parser.add_argument("--dataset", choices=mnist_files.NAMES, default="FashionMNIST")
    parser.add_argument("--data", type=Path, metavar="DIR", help="has the files, or gets them; default: a cache")
    parser.add_argument("--mirror", metavar="URL", help="where to download them; default: torchvision's mirrors")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128, help="samples per step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.1, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the data order")
    parser.add_argument("--autocast", action=argparse.BooleanOptionalAction, help="bfloat16; default: on GPUs")
    return parser


if __name__ == "__main__":
    main()
