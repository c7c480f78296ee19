"""What the report is made of: the parts of a round's store and of the ranks' watch that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kittrain.agent.report import history
from kittrain.system.heartbeat import Phase
from kittrain.system.heartbeat_files import LoadedFile


class Store(Protocol):
    """The part of torch's store that is used here."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """A key's value; waits until it is set."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of these keys; waits until all are set."""


class Ranks(history.Ranks, Protocol):
    """The part of ``RankWatch`` that is used here, besides what the history reads."""

    def reached(self, phase: Phase) -> float:
        """When all ranks of this node had reached a phase, in ``time.monotonic()``; 0 if not all have."""

    @property
    def script_steps(self) -> int:
        """The most optimizer steps that a rank has taken in a loop of the script's own; 0 in the library's."""

    @property
    def finished(self) -> int:
        """The last step of the library's loop that each rank has finished; 0 in a loop of the script's own."""

    @property
    def group(self) -> int:
        """Ranks of the largest process group that a rank has joined; 0: none."""

    @property
    def separate(self) -> int:
        """Processes of the largest group that a rank's own processes have formed apart from the job; 0: none."""

    @property
    def not_finite(self) -> int:
        """The first step at which a rank was seen to have a parameter that is not finite; 0: none."""

    @property
    def printed_loss(self) -> str:
        """What a rank prints of a loss that is not finite; empty: none does."""

    @property
    def loaded(self) -> int:
        """When the newest file that a rank went on from was last changed, in nanoseconds; 0: none."""

    @property
    def loaded_file(self) -> LoadedFile | None:
        """That file; None: no rank has loaded one."""

    @property
    def saved(self) -> tuple[int, str] | None:
        """A rank that has saved a checkpoint to its node's own folder, and that file's path in it."""

    @property
    def script_progress(self) -> Mapping[str, Any]:
        """The progress of a loop of the script's own; empty in the library's."""
