"""The report of the whole job: who runs where and how far it is, told by the agent that has group rank 0."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from kittrain.env import NodeEnv
from kittrain.node.configmap import ConfigMapSink
from kittrain.node.failurelog import FailureLog
from kittrain.node.recovery import Recovery
from kittrain.outcome.failures import Failure
from kittrain.system.console import say

LAST_WORDS: Final = 3.0  # seconds that the last report may take: a node that leaves has little time


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

    @property
    def interval(self) -> float:
        """Seconds between two reports while nothing but the progress changes."""

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the report.

        Raises:
            OSError: it could not be written; the next one may.
        """


@dataclass(frozen=True)
class FileSink:
    """``file:<path>``: a JSON file, replaced atomically."""

    interval: ClassVar[float] = 1.0

    path: Path

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the file."""
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(report))
        scratch.replace(self.path)


def sink_of(address: str | None, warn: Callable[[str], None]) -> Sink | None:
    """The sink that the job's document names; None without one, and for a kind that this version does not know."""
    scheme, _, rest = (address or "").partition(":")
    match scheme:
        case "file" if rest:
            return FileSink(Path(rest))
        case "configmap" if rest:
            return ConfigMapSink(name=rest)
    if address:
        warn(f"warning: report {address!r} is neither file:<path> nor configmap:<name>: status will know little")
    return None


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a node sits in a round, and since when by its own machine's clock (unix seconds)."""

    index: int
    pod: str
    host: str
    group_rank: int
    ranks: tuple[int, int]  # first and last
    joined: float
    lives: int  # how often this node was started, as far as its logs were kept


class Reporter:
    """Takes part in telling the report, round after round; only the agent with group rank 0 writes it.

    It is written by a thread of its own, so that a sink that fails or hangs costs the training nothing.
    """

    def __init__(self, node: NodeEnv, *, sink: Sink | None, progress_file: Path) -> None:
        self._node = node
        self._sink = sink
        self._progress_file = progress_file
        self._ranks = (0, -1)
        self._failures = FailureLog(node.node_index)
        self.recovery = Recovery()
        self._round = 0
        self._tempo: Mapping[str, Mapping[str, float]] = {}
        self._slow: set[str] = set()  # the ranks that were told
        self._report: dict[str, Any] | None = None  # while this node leads
        self._dissolved = False
        self._news = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._troubles: set[str] = set()  # that were told

    def begin(self, store: Store, *, group_rank: int, group_size: int, ranks: tuple[int, int], world: int) -> int:
        """Tell the others this node's seat; returns the round's number, which grows even if the store is new.

        It begins anew only if no node of the round before is left.

        Raises:
            torch.distributed.DistError: the store or another node went away.
        """
        seat = Seat(
            index=self._node.node_index,
            pod=self._node.pod,
            host=self._node.host,
            group_rank=group_rank,
            ranks=ranks,
            joined=time.time(),
            lives=self._node.lives,
        )
        self._ranks = ranks
        seen = {"round": self._round, "failures": self._failures.known}
        store.set(f"kit/seat/{group_rank}", json.dumps({"seat": asdict(seat), **seen}))
        if group_rank == 0:
            told = [json.loads(text) for text in store.multi_get([f"kit/seat/{i}" for i in range(group_size)])]
            store.set("kit/round", str(max(one["round"] for one in told) + 1))
            self._failures.merge(failure for one in told for failure in one["failures"])
        self._round = int(store.get("kit/round"))
        self._dissolved, self._tempo, self._slow = False, {}, set()
        if group_rank == 0 and self._sink:
            self._lead(self._sink, {str(one["seat"].pop("index")): one["seat"] for one in told}, world)
        else:
            self._report = None  # it is another node's to tell now
        return self._round

    @property
    def forming(self) -> bool:
        """Whether the group is known to be no more."""
        return self._dissolved

    def failed(self, failure: Failure) -> None:
        """Remember how a rank has failed."""
        self._failures.add(failure, self._ranks)

    def dissolve(self, cause: str, *, noticed: float | None = None) -> None:
        """Tell that the group is no more, and that another one is forming.

        Args:
            cause: for a person.
            noticed: when this node learned of it, in ``time.monotonic()``; None is now.
        """
        self._dissolved = True
        self.recovery.begin(cause, noticed=noticed)
        if self._report:
            self._report = {**self._report, "forming": True}
            self._news.set()

    def tempo(self, told: Mapping[str, Mapping[str, float]] | None) -> None:
        """How fast all ranks are, as ``Rendezvous.step_timings`` has it; who has become slow is said once."""
        if told is None:
            return
        self._tempo = told
        for rank in told["slow"].keys() - self._slow:
            self._slow.add(rank)
            say(
                self._node.node_index,
                f"rank {rank} is slow: its steps take {told['slow'][rank]:.1f} x what others' take",
            )

    def stop(self) -> None:
        """Tell the last of it, if that can be done soon, and stop for good."""
        self._stopping = True
        self._news.set()
        if self._thread:
            self._thread.join(LAST_WORDS)

    def _lead(self, sink: Sink, nodes: Mapping[str, Any], world: int) -> None:
        if not self._report:
            self._progress_file.unlink(missing_ok=True)  # of a round long ago
        self._report = {
            "run": self._node.run_id,
            "round": self._round,
            "formed": time.time(),
            "forming": False,
            "world_size": world,
            "nodes": nodes,
        }
        self._news.set()
        if not self._thread:
            self._thread = threading.Thread(target=self._tell, args=(sink,), name="report", daemon=True)
            self._thread.start()

    def _tell(self, sink: Sink) -> None:
        """Tell what is new about the group at once, and how far it is from time to time."""
        last = False
        while not last:
            self._news.wait(sink.interval)
            self._news.clear()
            last, report = self._stopping, self._report
            if report:
                now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                self._put(sink, {**report, "updated": now, "progress": self._progress(), **self._conduct(report)})

    def _conduct(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """How the group does: an entry a node, not a rank, since an object of Kubernetes holds a megabyte."""
        busy = {int(rank): seconds for rank, seconds in self._tempo.get("busy", {}).items()}
        pace = {
            index: round(max(busy[rank] for rank in ranks), 4)
            for index, seat in report["nodes"].items()
            if (ranks := [rank for rank in range(seat["ranks"][0], seat["ranks"][1] + 1) if rank in busy])
        }
        slow, failures = self._tempo.get("slow", {}), self._failures.known
        return {"busy": pace, "slow": slow, "last_recovery": self.recovery.complete, "failures": failures}

    def _put(self, sink: Sink, report: Mapping[str, Any]) -> None:
        try:
            sink.put(report)
        except OSError as error:  # a full disk, a server that is away: the next one may get through
            trouble = str(error)
            if trouble not in self._troubles:
                self._troubles.add(trouble)
                say(self._node.node_index, f"warning: status falls behind, its report cannot be written: {trouble}")

    def _progress(self) -> Any:
        try:
            return json.loads(self._progress_file.read_bytes())
        except (OSError, ValueError):
            return {}  # nothing told yet
