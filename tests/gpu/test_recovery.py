"""Ranks that are lost on a GPU: killed ones, ones that fail in CUDA, and what their successors find."""

from __future__ import annotations

import os
import signal

import pytest


def test_a_killed_rank_goes_on_over_a_new_communicator_as_if_nothing_had_been(job):
    undisturbed, struck = job(), job()
    struck.until_step(50)
    os.kill(struck.records("joined")[-1]["pid"], signal.SIGKILL)
    assert (undisturbed.wait(0), struck.wait(0)) == (0, 0), struck.everything()
    assert len(struck.records("joined")) == 2
    assert struck.losses() == undisturbed.losses()


def test_the_memory_of_a_killed_rank_is_free_for_the_next_one(job):
    made = job("--occupy", "0.6")
    for killed in (1, 2):
        made.until_step(1, processes=killed)
        os.kill(made.records("joined")[-1]["pid"], signal.SIGKILL)
    assert made.wait(0) == 0, made.everything()
    assert len(made.records("joined")) == 3, "none of them ran out of memory and was started again for it"


def test_a_gpu_that_is_shared_recovers_over_gloo(job):
    made = job(ranks=2, KIT_BACKEND="gloo")
    made.until_step(30)
    os.kill(made.records("joined")[-1]["pid"], signal.SIGKILL)
    assert made.wait(0) == 0, made.everything()


@pytest.mark.parametrize(
    ("how", "told"), [("kernel", "device-side assert"), ("memory", "out of memory")], ids=["kernel", "memory"]
)
def test_an_error_of_cuda_is_the_ranks_own_and_told_as_it_is(job, how, told):
    made = job("--fail", f"{how}@30", PET_MAX_RESTARTS="1")
    assert made.wait(0) == 78, made.everything()
    end = made.end(0)
    assert end["rank"] == 0
    assert told in end["error"], "the cause, not what it has led to"


def test_a_drain_leaves_the_step_that_it_names(job):
    made = job()
    made.until_step(30)
    made.signal(0, signal.SIGTERM)
    assert made.wait(0) == 75, made.everything()
    made.start(0)
    assert made.wait(0) == 0, made.everything()
    steps = [line["step"] for line in made.records("step")]
    assert steps == sorted(set(steps)), "no step twice"
