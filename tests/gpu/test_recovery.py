"""Recovery on a GPU: of killed ranks, and of ranks that fail in CUDA."""

from __future__ import annotations

import os
import signal

import pytest


def test_a_killed_rank_resumes_with_a_new_communicator_and_the_same_losses(job):
    uninterrupted, killed = job(), job()
    killed.until_step(50)
    os.kill(killed.records("joined")[-1]["pid"], signal.SIGKILL)
    assert (uninterrupted.wait(0), killed.wait(0)) == (0, 0), killed.everything()
    assert len(killed.records("joined")) == 2
    assert killed.losses() == uninterrupted.losses()


def test_the_memory_of_a_killed_rank_is_free_for_the_next_one(job):
    made = job("--occupy", "0.6")
    for killed in (1, 2):
        made.until_step(1, processes=killed)
        os.kill(made.records("joined")[-1]["pid"], signal.SIGKILL)
    assert made.wait(0) == 0, made.everything()
    assert len(made.records("joined")) == 3, "none of them was restarted because it ran out of memory"


def test_a_gpu_that_is_shared_recovers_over_gloo(job):
    made = job(ranks=2, KIT_BACKEND="gloo")
    made.until_step(30)
    os.kill(made.records("joined")[-1]["pid"], signal.SIGKILL)
    assert made.wait(0) == 0, made.everything()


@pytest.mark.parametrize(
    ("how", "message"), [("kernel", "device-side assert"), ("memory", "out of memory")], ids=["kernel", "memory"]
)
def test_an_error_of_cuda_is_fatal_and_reported_unchanged(job, how, message):
    made = job("--fail", f"{how}@30", PET_MAX_RESTARTS="1")
    assert made.wait(0) == 78, made.everything()
    end = made.end(0)
    assert end["rank"] == 0
    assert message in end["error"], "the cause, not its consequences"


def test_a_drain_repeats_no_step(job):
    made = job()
    made.until_step(30)
    made.signal(0, signal.SIGTERM)
    assert made.wait(0) == 75, made.everything()
    made.start(0)
    assert made.wait(0) == 0, made.everything()
    steps = [line["step"] for line in made.records("step")]
    assert steps == sorted(set(steps)), "no step twice"
