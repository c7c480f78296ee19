"""kittrain: what runs in the image, on every node. Never imports kitctl.

What a training script needs is here by name, and imported when it is first used: the agent looks at the environment,
and may be done, before it imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kittrain.outcome.completion import mark_finished
    from kittrain.training.loop import Drained, Training
    from kittrain.training.step_sync import Step
    from kittrain.world.data import Data
    from kittrain.world.distributed import World, join
    from kittrain.world.evaluation import evaluate
    from kittrain.world.order import Cursor
    from kittrain.world.replicas import DDPOptions

_HOMES = {
    "Cursor": "kittrain.world.order",
    "DDPOptions": "kittrain.world.replicas",
    "Data": "kittrain.world.data",
    "Drained": "kittrain.training.loop",
    "Step": "kittrain.training.step_sync",
    "Training": "kittrain.training.loop",
    "World": "kittrain.world.distributed",
    "evaluate": "kittrain.world.evaluation",
    "join": "kittrain.world.distributed",
    "mark_finished": "kittrain.outcome.completion",
}

__all__ = ["Cursor", "DDPOptions", "Data", "Drained", "Step", "Training", "World", "evaluate", "join", "mark_finished"]


def __getattr__(name: str) -> Any:
    """Import a name where it lives (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
