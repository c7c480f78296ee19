"""A loss that is not finite ends a job that asks for it, on all ranks after the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# Only rank 1's loss is NaN; the ranks' mean is, too.
SCRIPT = """
import math, torch
from torch.nn.parallel import DistributedDataParallel
from kittrain import Run, join
with join(seed=0) as world:
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    seen = open(f"steps-{world.rank}", "w", buffering=1)
    with Run(world, model=model, optimizer=optimizer, snapshot_every=5) as run:
        for done in run.steps(50):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            (loss * (math.nan if done + 1 == 13 and world.rank == 1 else 1)).backward()
            optimizer.step()
            print(done + 1, file=seen)
            run.step(loss * (math.nan if done + 1 == 13 and world.rank == 1 else 1))
"""


def test_all_ranks_stop_after_the_same_step_and_it_is_the_reason(kit: Kit) -> None:
    (kit.folder / "train.py").write_text(SCRIPT)
    words = ("--name", "nan", "--nodes", "3", "--set", "policy.onNonFinite=stop", "--wait", "train.py")
    output = kit.run("submit", *words, exit_code=100)
    assert "NonFiniteLossError: the loss of step 13 is nan" in output
    assert "fix: lower the learning rate" in output
    assert "restart 1" not in kit.run("logs", "nan"), "another try takes the same steps"
    assert {(kit.folder / f"steps-{rank}").read_text().split()[-1] for rank in range(3)} == {"14"}
    job = kit.status("nan")
    assert job["restarts"] == 0
    kept = {int(row.split()[0]) for row in kit.run("snapshots", "list", "nan").splitlines()[1:]}
    assert kept, "a finite one stays"
    assert kept <= {5, 10}
    why = kit.run("why", "nan")
    assert "the loss of step 13 is nan" in why.splitlines()[0]
