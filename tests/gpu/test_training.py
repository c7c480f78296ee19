"""Training on a GPU: NCCL, warm ranks, piggybacked messages, and several ranks on one GPU."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch

CLOSE = {"rel_tol": 1e-4}
STEPS = 3 * 2048 // 32


def test_a_rank_that_was_forked_warm_trains_over_nccl(job):
    made = job()
    assert made.wait(0) == 0, made.everything()
    (found,) = made.records("finished")
    assert (found["backend"], found["device"], found["warm"]) == ("nccl", "cuda:0", True)
    assert sorted(made.losses()) == list(range(1, STEPS + 1)), "each step's loss came along with its gradients"
    assert found["trace"] > 0, "NCCL's flight recorder is on"
    assert found["env"]["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_cold_and_warm_ranks_have_the_same_losses(job):
    warm, cold = job(), job(KIT_WARM_WORKERS="0")
    assert (warm.wait(0), cold.wait(0)) == (0, 0)
    assert not cold.records("joined")[0]["warm"]
    assert cold.losses() == warm.losses()


def test_the_loop_on_the_gpu_learns_what_it_learns_on_the_cpu(job):
    gpu, cpu = job(), job(KIT_GPUS_PER_NODE="0", KIT_BACKEND="gloo")
    assert (gpu.wait(0), cpu.wait(0)) == (0, 0)
    assert cpu.records("joined")[0]["device"] == "cpu"
    ours, theirs = gpu.losses()[1], cpu.losses()[1]
    assert ours == pytest.approx(theirs, rel=0.2), "dropout differs, nothing else"


def test_several_ranks_share_a_gpu_only_where_gloo_is_asked_for(job):
    refused = job(ranks=2, KIT_BACKEND="nccl")
    assert refused.wait(0) == 78, refused.everything()
    assert "`backend: gloo`, with which ranks share GPUs" in refused.everything()
    shared = job("--normalize", ranks=2, KIT_BACKEND="gloo")
    assert shared.wait(0) == 0, shared.everything()
    found = shared.records("finished")
    assert {(one["backend"], one["device"]) for one in found} == {("gloo", "cuda:0")}
    assert sorted(one["rank"] for one in found) == [0, 1]


@pytest.mark.parametrize("name", ["index", "uuid"])
def test_a_gpu_may_be_named_by_its_uuid(job, name):
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], check=True, capture_output=True, text=True
    )
    index, uuid = listed.stdout.splitlines()[0].split(", ")
    made = job("--epochs", "1", CUDA_VISIBLE_DEVICES={"index": index, "uuid": uuid}[name])
    assert made.wait(0) == 0, made.everything()
    assert made.records("finished")[0]["device"] == "cuda:0"


def test_a_gpu_that_is_not_visible_is_never_a_silent_cpu(job):
    made = job(CUDA_VISIBLE_DEVICES="-1", KIT_BACKEND="")
    assert made.wait(0) == 78, made.everything()
    assert "1 GPUs requested, but 0 visible to torch" in made.end(0)["reason"]


def test_these_tests_saw_a_gpu():
    print(torch.cuda.get_device_name(), torch.__version__, os.uname().release)
    assert torch.cuda.is_available()
