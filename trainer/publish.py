"""The report of the whole job: who runs where and how far it is, told by the agent that has group rank 0."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from trainer.env import NodeEnv

INTERVAL: Final = 1.0  # seconds between two reports at most


class Store(Protocol):
    """The part of a torch store that is needed here."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """A key's value, as soon as it is set."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of all these keys, as soon as they are set."""


class Sink(Protocol):
    """Where reports go."""

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the report.

        Raises:
            OSError: it could not be written; the next one may.
        """


@dataclass(frozen=True)
class FileSink:
    """``file:<path>``: a JSON file, replaced atomically."""

    path: Path

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the file."""
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(report))
        scratch.replace(self.path)


def sink_of(address: str | None) -> Sink | None:
    """The sink that KIT_REPORT names; None without one, or for a kind that this version does not know."""
    scheme, _, rest = (address or "").partition(":")
    return FileSink(Path(rest)) if scheme == "file" and rest else None


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a node sits in a round."""

    index: int
    pod: str
    host: str
    group_rank: int
    ranks: tuple[int, int]  # first and last


class Reporter:
    """Takes part in telling the report, round after round; only the agent with group rank 0 writes it."""

    def __init__(self, node: NodeEnv, *, sink: Sink | None, progress_file: Path) -> None:
        self._node = node
        self._sink = sink
        self._progress_file = progress_file
        self._round = 0
        self._report: dict[str, Any] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, store: Store, *, group_rank: int, group_size: int, ranks: tuple[int, int], world: int) -> int:
        """Tell the others this node's seat; returns the round's number, which only grows even if the store is new.

        Raises:
            torch.distributed.DistError: the store or another node went away.
        """
        led = self._thread is not None
        self.stop()
        seat = Seat(
            index=self._node.node_index,
            pod=self._node.pod,
            host=self._node.host,
            group_rank=group_rank,
            ranks=ranks,
        )
        store.set(f"kit/seat/{group_rank}", json.dumps({"seat": asdict(seat), "round": self._round}))
        if group_rank == 0:
            told = [json.loads(text) for text in store.multi_get([f"kit/seat/{i}" for i in range(group_size)])]
            store.set("kit/round", str(max(one["round"] for one in told) + 1))
        self._round = int(store.get("kit/round"))
        if group_rank == 0 and self._sink:
            if not led:
                self._progress_file.unlink(missing_ok=True)  # of a round long ago
            self._lead(self._sink, {str(one["seat"].pop("index")): one["seat"] for one in told}, world)
        return self._round

    def dissolve(self) -> None:
        """Tell that the group is no more, and that another one is forming."""
        self._report = {**self._report, "forming": True}

    def stop(self) -> None:
        """Tell the last of it, and stop."""
        if self._thread:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _lead(self, sink: Sink, nodes: Mapping[str, Any], world: int) -> None:
        self._report = {
            "run": self._node.run_id,
            "round": self._round,
            "formed": time.time(),
            "forming": False,
            "world_size": world,
            "nodes": nodes,
        }
        self._stopped.clear()
        self._thread = threading.Thread(target=self._tell, args=(sink,), name="report", daemon=True)
        self._thread.start()

    def _tell(self, sink: Sink) -> None:
        while True:
            last = self._stopped.is_set()
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            with suppress(OSError):  # a full disk must not end the training; the next report may get through
                sink.put({**self._report, "updated": now, "progress": self._progress()})
            if last:
                return
            self._stopped.wait(INTERVAL)

    def _progress(self) -> Any:
        try:
            return json.loads(self._progress_file.read_bytes())
        except (OSError, ValueError):
            return {}  # nothing told yet
