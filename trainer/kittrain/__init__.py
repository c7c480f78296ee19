"""kittrain: the library and the agent that run in the image, on every node. Never imports kitctl.

The names that a training script needs are imported lazily, on first use: the agent checks its environment, and may
exit, before it imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kittrain.outcome.completion import mark_finished
    from kittrain.training.loop import Training
    from kittrain.training.run import Run
    from kittrain.training.session import Drained
    from kittrain.training.step_sync import Step
    from kittrain.world.attach import attach
    from kittrain.world.data import Data
    from kittrain.world.distributed import World, join
    from kittrain.world.evaluation import evaluate
    from kittrain.world.order import Cursor
    from kittrain.world.replicas import DDPOptions

_MODULES = {
    "Cursor": "kittrain.world.order",
    "DDPOptions": "kittrain.world.replicas",
    "Data": "kittrain.world.data",
    "Drained": "kittrain.training.session",
    "Run": "kittrain.training.run",
    "Step": "kittrain.training.step_sync",
    "Training": "kittrain.training.loop",
    "World": "kittrain.world.distributed",
    "attach": "kittrain.world.attach",
    "evaluate": "kittrain.world.evaluation",
    "join": "kittrain.world.distributed",
    "mark_finished": "kittrain.outcome.completion",
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
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
