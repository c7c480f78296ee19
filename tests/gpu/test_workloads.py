"""The workloads on a GPU: over NCCL, in mixed precision, and resumed after SIGTERM."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.trainer.nodes import ColdNodes
from tests.trainer.workloads import idx


def workload(folder: Path, name: str, *arguments: str, **env: str) -> ColdNodes:
    """One node that runs a workload on one GPU."""
    command = ("-m", f"kittrain.workloads.{name}", *arguments)
    return ColdNodes(folder, *command, nodes="1", KIT_GPUS_PER_NODE="1", KIT_SNAPSHOTS_EVERY_STEPS="20", **env)


def number(pattern: str, output: str) -> float:
    return float(re.findall(pattern, output)[-1])


def test_mnist_learns_in_bfloat16(tmp_path):
    idx.write(tmp_path / "data")
    with workload(tmp_path, "mnist", "--dataset", "MNIST", "--data", str(tmp_path / "data"), "--epochs", "6") as node:
        node.start(0)
        assert node.wait(0) == 0, node.everything()
        assert number(r"accuracy ([\d.]+) %", node.output(0)) > 90


def test_lm_is_drained_and_resumes(tmp_path):
    with workload(tmp_path, "lm", "--recompute", "--epochs", "2", "--batch-size", "16") as node:
        node.start(0)
        node.until_true(lambda: bool(list(node.snapshots.glob("step-*"))), "snapshot")
        node.signal(0, signal.SIGTERM)
        assert node.wait(0) == 75, node.everything()
        node.start(0)
        assert node.wait(0) == 0, node.everything()
        assert "resuming after step" in node.output(0)
        assert number(r"loss ([\d.]+) nats", node.output(0)) < 2.3


@pytest.mark.parametrize("backend", ["", "gloo"])
def test_allreduce_adds_on_the_gpu(tmp_path, backend):
    more = {"PET_NPROC_PER_NODE": "2", "KIT_BACKEND": backend} if backend else {}
    with workload(tmp_path, "allreduce", **more) as node:
        node.start(0)
        assert node.wait(0) == 0, node.everything()
        assert "correct for" in node.output(0)
