"""Workers of a script's ``multiprocessing.Pool`` that were killed: the pool starts others, and waits for the lost work.

It does so for ever, and says nothing. Here the rank says it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import LOST_WORKER
from kittrain.system.imports import after_import
from kittrain.system.processes import signal_name

MODULE: Final = "multiprocessing.pool"
TAKES_AWAY: Final = "_join_exited_workers"  # those that have ended; not called once the pool itself ends


def watch() -> None:
    """Say it of each pool in this process, and in those that it forks."""
    after_import(MODULE, _watch_pools)


def _watch_pools(module: ModuleType) -> None:
    take_away: Callable[[list[Any]], Any] | None = getattr(module.Pool, TAKES_AWAY, None)
    if take_away is None:  # another Python's
        return

    @in_place_of(take_away)
    def tell_and_take_away(workers: list[Any]) -> Any:
        before = [*workers]
        found = take_away(workers)
        for one in before:
            if one not in workers and one.exitcode is not None and one.exitcode < 0:
                with suppress(AttributeError, OSError, ValueError):  # the script has closed it, or has none
                    sys.stderr.write(f"warning: {LOST_WORKER} ({signal_name(-one.exitcode)})\n")
        return found

    setattr(module.Pool, TAKES_AWAY, staticmethod(tell_and_take_away))
