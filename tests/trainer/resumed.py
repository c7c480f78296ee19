"""A single rank that trains without data, step by step, for tests of what a snapshot restores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.settings import job

ORDER = Order(samples=100, batch=1)


class Learner:
    """Resumes from the snapshots in its folder.

    Args:
        folder: of the snapshots.
        model: as a script passes it, wrapped or not.
        optimize: creates the optimizer.
        plain: the module itself, if the model wraps it.
        schedule: creates the scheduler, if there is one.
        from_scratch: start from scratch if no snapshot is usable.
    """

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        optimize: Callable[[nn.Module], Optimizer],
        plain: Any = None,
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
        *,
        from_scratch: bool = False,
    ) -> None:
        self.model: Any = model
        self.plain: Any = plain or model
        self.optimizer = optimize(model)
        self.scheduler = schedule(self.optimizer) if schedule else None
        env = RankEnv(job=job(from_scratch=from_scratch), run_id="run", snapshot_dir=folder)
        world = World(env=env, device=torch.device("cpu"))
        state = State(model=model, optimizer=self.optimizer, scheduler=self.scheduler)
        self.snapshots = SnapshotManager(world, state, ORDER)
        self.step = ORDER.step(self.snapshots.restore())

    def train(self, until: int) -> None:
        """Train up to a step."""
        while self.step < until:
            self.step += 1
            torch.manual_seed(self.step)
            inputs = torch.rand(4, 3)
            self.optimizer.step(partial(self.closure, inputs))
            if self.scheduler:
                self.scheduler.step()

    def closure(self, inputs: Tensor) -> float:
        self.optimizer.zero_grad()
        loss: Tensor = self.model(inputs).square().mean()
        loss.backward()
        return loss.item()

    def save(self) -> None:
        self.snapshots.commit(Cursor(0, self.step), {})

    def finish(self) -> None:
        self.snapshots.finish()


def assert_alike(one: Learner, other: Learner) -> None:
    """Model, optimizer and scheduler are bitwise equal."""
    for mine, theirs in [
        (one.plain.state_dict(), other.plain.state_dict()),
        (flat_state(one.optimizer), flat_state(other.optimizer)),
    ]:
        if any("_orig_mod" in str(name) or "_checkpoint_wrapped" in str(name) for name in mine):
            mine = dict(zip(theirs, mine.values(), strict=True))  # noqa: PLW2901  a part of it is wrapped
        torch.testing.assert_close(dict(mine), dict(theirs), rtol=0, atol=0, equal_nan=True)
    if one.scheduler and other.scheduler:
        assert repr(one.scheduler.state_dict()) == repr(other.scheduler.state_dict())


def flat_state(optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer's state and hyperparameters, flat."""
    flat: dict[str, Any] = {}

    def visit(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, one in value.items():
                visit(f"{path}/{key}", one)
        elif isinstance(value, list | tuple):
            for number, one in enumerate(value):
                visit(f"{path}/{number}", one)
        else:
            flat[path] = value if isinstance(value, Tensor) else torch.tensor(hash(repr(value)))

    state = optimizer.state_dict()
    visit("", {name: one for name, one in state.items() if name != "param_names"})
    return dict(sorted(flat.items()))
