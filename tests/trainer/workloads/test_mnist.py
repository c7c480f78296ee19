"""The mnist workload reaches its accuracy, and resumes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch

from kittrain.workloads import mnist, mnist_files
from tests.trainer.workloads import idx
from tests.trainer.worlds import TRAINING_SECONDS, Ranks

ACCURACY = re.compile(r"accuracy ([\d.]+) % on (\d+) test images")


def accuracy(ranks: Ranks) -> tuple[float, int]:
    found = ACCURACY.search(ranks.log.read_text())
    assert found is not None, ranks.log.read_text()
    return float(found[1]), int(found[2])


@pytest.mark.wide
@pytest.mark.slow
def test_it_learns_and_resumes_on_another_number_of_ranks(tmp_path: Path) -> None:
    idx.write(tmp_path / "data")
    command = ["kittrain.workloads.mnist", "--dataset", "MNIST", "--data", str(tmp_path / "data"), "--batch-size", "32"]
    ranks = Ranks(tmp_path, *command, KIT_RESUME="1", KIT_SNAPSHOTS_EVERY_STEPS="10")
    ranks.start(2, "--epochs", "4")
    while not list(ranks.snapshots.glob("step-*")):
        pass
    ranks.signal(0, signal.SIGTERM)
    assert ranks.wait() == [75, 75]
    assert ranks.run(3, "--epochs", "4") == [0, 0, 0]
    assert "resuming after step" in ranks.log.read_text()
    reached, images = accuracy(ranks)
    assert reached > 93
    assert images == 359


@pytest.mark.slow
def test_unavailable_images_are_an_error_with_a_fix(tmp_path: Path) -> None:
    mirror = ["--mirror", "http://127.0.0.1:9/"]
    ranks = Ranks(tmp_path, "kittrain.workloads.mnist", "--dataset", "MNIST", "--data", str(tmp_path), *mirror)
    assert ranks.run(1) == [1]
    assert f"mnist: MNIST is not in {tmp_path}, and cannot be downloaded there: http" in ranks.log.read_text()


@pytest.mark.long
@pytest.mark.timeout(2 * TRAINING_SECONDS)
def test_fashion_mnist_reaches_its_target(tmp_path: Path) -> None:
    try:
        mnist_files.load("FashionMNIST")
    except mnist_files.ImagesNotFoundError as error:
        pytest.skip(str(error))
    ranks = Ranks(tmp_path, "kittrain.workloads.mnist", "--epochs", "2", OMP_NUM_THREADS="1")
    assert ranks.run(2, seconds=TRAINING_SECONDS) == [0, 0]
    reached, images = accuracy(ranks)
    assert reached >= 88
    assert images == 10_000


def test_autocast_computes_in_bfloat16_and_returns_float32() -> None:
    network = mnist.ConvNet(autocast=True)
    inner: list[torch.dtype] = []
    network.layers[-1].register_forward_hook(lambda *call: inner.append(call[2].dtype))
    scores = network(torch.zeros(2, 1, 28, 28, dtype=torch.uint8))
    assert inner == [torch.bfloat16]
    assert scores.dtype == torch.float32
    assert scores.shape == (2, 10)
