"""trainer: what runs in the image, on every node. Never imports kitctl.

What a training script needs is here by name, and imported when it is first used: the agent looks at the environment,
and may be done, before it imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.outcome.completion import mark_finished
    from trainer.training.loop import Drained, Training
    from trainer.training.pulse import Step
    from trainer.world.data import Data
    from trainer.world.distributed import World, join
    from trainer.world.evaluation import evaluate
    from trainer.world.order import Cursor
    from trainer.world.replicas import DDPOptions

_HOMES = {
    "Cursor": "trainer.world.order",
    "DDPOptions": "trainer.world.replicas",
    "Data": "trainer.world.data",
    "Drained": "trainer.training.loop",
    "Step": "trainer.training.pulse",
    "Training": "trainer.training.loop",
    "World": "trainer.world.distributed",
    "evaluate": "trainer.world.evaluation",
    "join": "trainer.world.distributed",
    "mark_finished": "trainer.outcome.completion",
}

__all__ = ["Cursor", "DDPOptions", "Data", "Drained", "Step", "Training", "World", "evaluate", "join", "mark_finished"]


def __getattr__(name: str) -> Any:
    """Import a name where it lives (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
