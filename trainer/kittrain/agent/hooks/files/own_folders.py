"""Ends a script that saves by itself where each node has a folder of its own: what it saves would be lost with a node.

Only the library's snapshots have copies on other nodes. Whether a script uses them shows when it has trained a little.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from kittrain.job.env import rank_env
from kittrain.job.variables import EnvError

MANAGER: Final = "kittrain.rank.snapshots.manager"
STEPS: Final = 5  # of optimizers, so that a step that only makes their state is none
REFUSED: Final = (
    "snapshots.storage: {} keeps copies of the snapshots of kittrain.Training and kittrain.Run alone, and this "
    "script trains without them: what it saves would be lost with its node; fix: snapshots.storage: claim, or train "
    "with one of the two (docs/trainer.md)"
)


class OwnFolderError(RuntimeError):
    """The script's checkpoints would be on one node only."""


def watch(module: ModuleType, environ: Mapping[str, str]) -> None:
    """Look at the first steps of any optimizer, if this job's nodes have folders of their own.

    Args:
        module: ``torch.optim.optimizer``.
        environ: of the rank.
    """
    if not _apart(environ):
        return
    left, storage = STEPS, rank_env(environ).job.snapshots.storage

    def called(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            return
        handle.remove()
        if not getattr(sys.modules.get(MANAGER), "used", False):
            raise OwnFolderError(REFUSED.format(storage))

    handle = module.register_optimizer_step_post_hook(called)


def _apart(environ: Mapping[str, str]) -> bool:
    """Whether each node has a folder of its own. What cannot be read, the rank itself complains about."""
    try:
        return rank_env(environ).job.snapshots.storage != "claim"
    except EnvError:
        return False
