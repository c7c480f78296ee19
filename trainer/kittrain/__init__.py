"""kittrain: the library and the agent that run in the image, on every node. Never imports kitctl.

The names that a training script needs are imported lazily, on first use: the agent checks its environment, and may
exit, before it imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kittrain.outcome.completion import mark_finished
    from kittrain.rank.training.live_run import run_rounds
    from kittrain.rank.training.loop import Training
    from kittrain.rank.training.run import Run
    from kittrain.rank.training.session import Drained
    from kittrain.rank.training.step_sync import Step
    from kittrain.rank.world.attach import attach
    from kittrain.rank.world.data import Data
    from kittrain.rank.world.distributed import World, join
    from kittrain.rank.world.evaluation import evaluate
    from kittrain.rank.world.order import Cursor
    from kittrain.rank.world.replicas import DDPOptions

_MODULES = {
    "Cursor": "kittrain.rank.world.order",
    "DDPOptions": "kittrain.rank.world.replicas",
    "Data": "kittrain.rank.world.data",
    "Drained": "kittrain.rank.training.session",
    "Run": "kittrain.rank.training.run",
    "Step": "kittrain.rank.training.step_sync",
    "Training": "kittrain.rank.training.loop",
    "World": "kittrain.rank.world.distributed",
    "attach": "kittrain.rank.world.attach",
    "evaluate": "kittrain.rank.world.evaluation",
    "join": "kittrain.rank.world.distributed",
    "mark_finished": "kittrain.outcome.completion",
    "run_rounds": "kittrain.rank.training.live_run",
}

__all__ = [
    "Cursor",
    "DDPOptions",
    "Data",
    "Drained",
    "Run",
    "Step",
    "Training",
    "World",
    "attach",
    "evaluate",
    "join",
    "mark_finished",
    "run_rounds",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
