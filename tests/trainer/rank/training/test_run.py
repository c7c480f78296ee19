"""A script's own loop ends with the same bits, whether or not it was interrupted within an epoch."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.loops import DIVIDED_SAMPLES, EPOCHS, FITS, LOOPS, LOOPS_OF_3_RANKS, LOOPS_OF_4_RANKS, STEPS, train
from tests.trainer.sharded import skip_without_fsdp_on_cpus

CORE = ("fit with all options", "ddp", "persistent workers")  # the others are the same in other combinations
# Loops, each with a number of ranks.
RESUMED_AS = [("sharded and replicated", 4), ("sharded and tensor parallel", 2), ("sharded", 3), ("DDP", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [
        # Two ranks could not show the order of a sum.
        *(
            pytest.param(name, 3, marks=() if name in CORE else pytest.mark.wide)
            for name in (*LOOPS, *LOOPS_OF_3_RANKS)
        ),
        *(pytest.param(name, 4, marks=pytest.mark.wide) for name in LOOPS_OF_4_RANKS),
    ],
)
def test_a_loop_that_was_killed_and_resumed_ends_with_the_same_bits(tmp_path: Path, name: str, size: int) -> None:
    if "sharded" in name:
        skip_without_fsdp_on_cpus()
    assert -9 in train(name, tmp_path, {"quiet": None, "killed": 13}, size=size), log(tmp_path)
    assert train(name, tmp_path, {"killed": None}, size=size) == [0] * size, log(tmp_path)
    (resumed,) = map(int, re.findall(r"resuming after step (\d+)", log(tmp_path)))
    assert 8 < resumed < 12, "within the last epoch, or the third of four"
    for rank in range(size):
        expected, found = (load(tmp_path / part / f"result-{rank}.pt") for part in ("quiet", "killed"))
        assert len(expected["losses"]) == STEPS - name.startswith("fit")
        assert found["losses"] == {step: loss for step, loss in expected["losses"].items() if step > resumed}
        torch.testing.assert_close(found["state"], expected["state"], rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sharded and tensor parallel", pytest.param("sharded and replicated", marks=pytest.mark.long)]
)
def test_a_model_on_a_mesh_resumes_on_any_other_and_on_any_number_of_ranks(tmp_path: Path, name: str) -> None:
    skip_without_fsdp_on_cpus()
    assert train("alone", tmp_path, {"quiet": None}, size=1) == [0], log(tmp_path)
    expected = load(tmp_path / "quiet" / "result-0.pt")
    assert -9 in train(name, tmp_path, {"killed": 13}, size=4), log(tmp_path)
    for other, size in RESUMED_AS:
        part = f"{other} {size}"
        shutil.copytree(tmp_path / "killed", tmp_path / part)
        assert train(other, tmp_path, {part: None}, size=size) == [0] * size, log(tmp_path)
        found = load(tmp_path / part / "result-0.pt")
        assert 1 < min(found["losses"]) <= STEPS == max(found["losses"])
        for step, loss in found["losses"].items():
            assert loss == pytest.approx(expected["losses"][step], rel=1e-4)
        state = {name.removeprefix("module."): one for name, one in found["state"].items()}
        torch.testing.assert_close(state, expected["state"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FITS)[1:])
def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path: Path, name: str) -> None:
    if "sharded" in name:
        skip_without_fsdp_on_cpus()
    for one in ("whole", name):
        assert train(one, tmp_path, {one: None}, size=3) == [0, 0, 0], log(tmp_path)
    expected, found = (load(tmp_path / one / "result-0.pt") for one in ("whole", name))
    assert list(found["losses"]) == list(range(1, STEPS))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.wide
@pytest.mark.slow
def test_each_sample_of_an_epoch_counts_on_3_1_3_and_2_ranks(tmp_path: Path) -> None:
    for size, dies_at in ((3, 5), (1, 8), (3, 14)):
        assert -9 in train("divided", tmp_path, {"run": dies_at}, size=size), log(tmp_path)
    assert train("divided", tmp_path, {"run": None}, size=2) == [0, 0], log(tmp_path)
    assert len(re.findall("resuming after step", log(tmp_path))) == 3
    lines = [json.loads(line) for path in (tmp_path / "run").glob("taken-*") for line in path.read_text().splitlines()]
    generation = {step: max(one["generation"] for one in lines if one["step"] == step) for step in range(1, 19)}
    kept = [one for one in lines if one["generation"] == generation[one["step"]]]
    assert {one["generation"] for one in kept} == {1, 2, 3, 4}
    for epoch in range(EPOCHS):
        taken = Counter(sample for one in kept if one["epoch"] == epoch for sample in one["ids"])
        assert set(taken) == set(range(DIVIDED_SAMPLES))
        assert sum(taken.values()) - DIVIDED_SAMPLES < 3, "the sampler's padding"


def load(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def log(folder: Path) -> str:
    return (folder / "log-0").read_text()
