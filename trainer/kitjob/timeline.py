"""A run's history: what each agent appends to its file next to the snapshots, a JSON object a line.

A reader takes whole lines and ignores the rest, so a kill at any byte costs a line at most. Times are Unix seconds by
the writer's own steady clock; ``Clock`` says how far that is from the run's. Names on the wire are in camelCase, and
fields that have their default are left out.

Why: decision 54.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.record import Record, camel, given_fields

FOLDER: Final = "history"  # among a job's snapshots, or next to a report that is a file; a folder a run
RUN_BYTES: Final = 8 << 20  # of all files of a run
LEAST_BYTES: Final = 4 << 10  # of a node's, however many nodes there are
TAIL_BYTES: Final = 16 << 10  # of the tail in the status ConfigMap

State = Literal["code", "start", "join", "spare", "ranks", "stop", "barrier", "exit"]
"""What an agent does: ``code`` unpacks code and installs packages; ``start`` imports and connects; ``join`` waits for
the round; ``spare`` stands by while others train; ``ranks`` run; ``stop`` stops them; ``barrier`` waits for other
nodes' ranks to end; ``exit`` is the end."""

What = Literal[
    "submitted",
    "queued",
    "admitted",
    "scheduled",
    "pulled",
    "started",
    "prepared",
    "joined",
    "first step",
    "fault",
    "recovered",
    "snapshot",
    "resized",
    "evaluated",
    "held",
    "drained",
    "ended",
]


class Writer(Record):
    """The first line of a writer: one start of an agent."""

    node: int
    """Index of the node."""
    id: str
    """Unique among the run's writers."""
    time: float
    """When it started."""
    pod: str = ""
    """Name of its pod."""
    host: str = ""
    """The machine that it runs on."""
    restarts: int = 0
    """How often its container has started it again."""
    cause: str = ""
    """How the agent before it ended, if that is known."""


class Clock(Record):
    """How far this writer's clock was from the run's, which is node 0's, when that was measured."""

    time: float
    """When, by this writer's clock."""
    offset: float
    """Seconds to add to this writer's times."""
    error: float = 0.0
    """At most so many seconds wrong."""


class AgentState(Record):
    """The agent has begun to do something else."""

    time: float
    """When."""
    state: State
    """What it does from now on."""
    cause: str = ""
    """Why, if that is the end of a round."""


class Row(Record):
    """What the ranks of a node did in an interval, about a second long at first, longer as the history grows."""

    time: float
    """The interval's end."""
    seconds: float
    """Its length."""
    round: int = 0
    """Number of the group."""
    world: int = 0
    """Ranks of the group."""
    step: int | None = None
    """Optimizer steps at the end; in a script's own loop those of its current ranks. Null: none yet."""
    steps: int = 0
    """Steps that ended in the interval."""
    phases: dict[str, float] = {}
    """By phase of the loop, the seconds that ranks spent in it, averaged over the node's ranks."""
    phase: str = ""
    """The phase at the end, of the rank that has been longest in it."""
    busy: float = 0.0
    """Seconds in which the slowest rank did not wait for others."""
    memory: int = 0
    """Bytes of main memory that the node's ranks hold. 0: unknown."""
    loss: float | None = None
    """The last loss; only on the node with rank 0, as what follows. Null: unknown, or not finite."""
    samples_per_second: float | None = None
    """Throughput of all ranks. Null: unknown."""
    epoch: int | None = None
    """The epoch, from 1."""

    @property
    def of_own_loop(self) -> bool:
        """Whether the script has a loop of its own, of which less is known; all of a row may be an evaluation there."""
        return "SCRIPT" in self.phases or self.phase == "SCRIPT"


class Event(Record):
    """Something that happened once. What does not apply has its default."""

    time: float
    """When."""
    what: What
    """What happened."""
    node: int | None = None
    """The node that it happened to. Null: the whole job."""
    rank: int | None = None
    """The rank that it happened to."""
    cause: str = ""
    """Why, in a sentence."""
    step: int | None = None
    """The optimizer step that it belongs to."""
    seconds: float | None = None
    """How long it took, up to ``time``."""
    since: float | None = None
    """Of a fault: when the node's ranks last moved."""
    parts: dict[str, float] = {}
    """The parts of a recovery; of a snapshot ``stall``."""
    round: int = 0
    """Number of the group."""
    world: int = 0
    """Ranks of the group."""
    nodes: int = 0
    """Nodes of the group."""
    lost_steps: int = 0
    """Steps that are taken again."""
    outcome: str = ""
    """How the agent ended; of a fault ``hang``, if the ranks did."""


class Dropped(Record):
    """So many lines before the next one were dropped, since there were too many."""

    lines: int


Line: TypeAlias = Writer | Clock | AgentState | Row | Event | Dropped
KINDS: Final[Mapping[str, Any]] = {
    "writer": Writer,
    "clock": Clock,
    "state": AgentState,
    "row": Row,
    "event": Event,
    "dropped": Dropped,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_SHORT: Final = 4  # decimals, or digits of what is less than 1


def encode(line: Line) -> bytes:
    """A line with its line feed."""
    whole = typed.encode(line)
    given = {camel(name): whole[camel(name)] for name in given_fields(line)}
    fields = {"kind": _NAMES[type(line)], **{name: _rounded(value) for name, value in given.items()}}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def decode(text: bytes) -> Line | None:
    """A line; None if it is none, cut short, or of a kind that a newer version added."""
    try:
        fields = typed.parse(text)
        kind = KINDS.get(fields.pop("kind", "")) if isinstance(fields, dict) else None
        found: Line | None = typed.decode(kind, fields) if kind else None
    except (MalformedError, TypeError):
        return None
    return found


def lines(content: bytes) -> Iterator[Line]:
    """The whole lines of a file, in order."""
    for text in content.split(b"\n")[:-1]:  # what follows the last line feed was cut short
        if line := decode(text):
            yield line


def content(found: Iterable[Line]) -> bytes:
    """Lines as a file has them."""
    return b"".join(map(encode, found))


def node_bytes(nodes: int) -> int:
    """How many bytes the files of one of so many nodes may have."""
    return max(RUN_BYTES // max(nodes, 1), LEAST_BYTES)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _SHORT) if abs(value) >= 1 or value == 0 else float(f"{value:.{_SHORT}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value
