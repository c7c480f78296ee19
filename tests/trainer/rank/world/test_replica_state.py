"""From three ranks on the order of a sum matters: a run resumes with that of its first process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainer.interrupted import LOOPS, SECONDS, STEPS, interrupt, stops
from tests.trainer.sharded import has_fsdp_on_cpus


@pytest.mark.slow
@pytest.mark.timeout(int(SECONDS))
@pytest.mark.parametrize(
    ("kind", "size", "steps"),
    [
        ("fit", 3, (1, 2)),
        pytest.param("Run", 3, (1,), marks=pytest.mark.wide),  # test_run.py kills such loops of three ranks later
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for kind in ("fit", "Run")
            for case in ((kind, 3, (2, 3)), (kind, 4, (1, 3)), (kind, 5, (1, 3)))
        ),
    ],
)
def test_a_resumed_run_adds_up_gradients_in_the_same_order(
    tmp_path: Path, kind: str, size: int, steps: tuple[int, ...]
) -> None:
    names = [name for name in LOOPS if name.startswith(kind) and ("sharded" not in name or has_fsdp_on_cpus())]
    ranks = interrupt(names, tmp_path, size=size, steps=steps)
    for rank, results in enumerate(ranks):
        for name, ends in results.items():
            quiet = ends.pop(0)
            assert list(quiet["losses"]) == list(range(1, STEPS + 1))
            for step, end in ends.items():
                resumed = step + len(stops(name, step)) - 1
                assert f"resuming after step {resumed}" in ranks[0][name][step]["log"]
                losses = {number: loss for number, loss in quiet["losses"].items() if number > resumed}
                exact = same(end["state"], quiet["state"]) and same(end["losses"], losses)
                assert exact, f"{name} on rank {rank}, resumed after step {resumed}"


def same(one: object, other: object) -> bool:
    try:
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True
