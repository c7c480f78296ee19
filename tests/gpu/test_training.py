"""Training on a GPU: NCCL, warm ranks, piggybacked messages, and several ranks on one GPU."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch

from kittrain.rank.training.step_sync import PendingMean
from kittrain.rank.world.transfer import copy_behind

CLOSE = {"rel_tol": 1e-4}
STEPS = 3 * 2048 // 32


def test_a_warm_rank_trains_over_nccl(job):
    made = job()
    assert made.wait(0) == 0, made.everything()
    (found,) = made.records("finished")
    assert (found["backend"], found["device"], found["warm"]) == ("nccl", "cuda:0", True)
    assert sorted(made.losses()) == list(range(1, STEPS + 1)), "one loss per step"
    assert found["trace"] > 0, "NCCL's flight recorder is on"
    assert found["env"]["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_cold_and_warm_ranks_have_the_same_losses(job):
    warm, cold = job(), job(KIT_WARM_WORKERS="0")
    assert (warm.wait(0), cold.wait(0)) == (0, 0)
    assert not cold.records("joined")[0]["warm"]
    assert cold.losses() == warm.losses()


def test_losses_on_the_gpu_and_on_the_cpu_are_close(job):
    gpu, cpu = job(), job(KIT_GPUS_PER_NODE="0", KIT_BACKEND="gloo")
    assert (gpu.wait(0), cpu.wait(0)) == (0, 0)
    assert cpu.records("joined")[0]["device"] == "cpu"
    ours, theirs = gpu.losses()[1], cpu.losses()[1]
    assert ours == pytest.approx(theirs, rel=0.2), "only dropout differs"


def test_several_ranks_share_a_gpu_only_with_gloo(job):
    refused = job(ranks=2, KIT_BACKEND="nccl")
    assert refused.wait(0) == 78, refused.everything()
    assert "share GPUs with `backend: gloo`" in refused.everything()
    shared = job("--normalize", ranks=2, KIT_BACKEND="gloo")
    assert shared.wait(0) == 0, shared.everything()
    found = shared.records("finished")
    assert {(one["backend"], one["device"]) for one in found} == {("gloo", "cuda:0")}
    assert sorted(one["rank"] for one in found) == [0, 1]


@pytest.mark.parametrize("name", ["index", "uuid"])
def test_a_gpu_may_be_selected_by_its_uuid(job, name):
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], check=True, capture_output=True, text=True
    )
    index, uuid = listed.stdout.splitlines()[0].split(", ")
    made = job("--epochs", "1", CUDA_VISIBLE_DEVICES={"index": index, "uuid": uuid}[name])
    assert made.wait(0) == 0, made.everything()
    assert made.records("finished")[0]["device"] == "cuda:0"


def test_an_invisible_gpu_is_an_error(job):
    made = job(CUDA_VISIBLE_DEVICES="-1", KIT_BACKEND="")
    assert made.wait(0) == 78, made.everything()
    assert "1 GPU requested, but 0 visible to torch" in made.end(0)["reason"]


def test_a_batch_that_is_copied_behind_the_work_of_the_gpu_is_complete():
    device = torch.device("cuda", torch.cuda.current_device())
    busy = torch.rand(4096, 4096, device=device)
    for number in range(20):
        batch = {"inputs": torch.full((1 << 20,), float(number)).pin_memory(), "ids": [number]}
        busy = busy @ busy * 1e-4  # the current stream has work
        copied = copy_behind(batch, device)
        total = copied["inputs"].sum()
        del copied, batch  # their memory may be used again
        assert total.item() == number * (1 << 20)


def test_means_are_read_from_page_locked_memory_that_is_used_again():
    values = torch.arange(5.0, device="cuda")
    means = [PendingMean(values + number) for number in range(3)]
    assert [one.read() for one in means] == [[number + index for index in range(5)] for number in range(3)]
    assert PendingMean(values).read() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_gpu_is_available():
    print(torch.cuda.get_device_name(), torch.__version__, os.uname().release)
    assert torch.cuda.is_available()
