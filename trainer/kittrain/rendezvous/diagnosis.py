"""Why no rank moves: from where each one stands to one sentence that names the cause. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kittrain.rendezvous.stacks import BACKWARD, Place
from kittrain.system.heartbeat import STEP, Phase

DOING: Final[Mapping[Phase, str]] = {
    Phase.STARTING: "starting",
    Phase.JOINING: "joining the other ranks",
    Phase.PREPARING: "preparing to train",
    Phase.RESTORING: "restoring",
    Phase.DATA: "data loading",
    Phase.FORWARD: "the forward pass",
    Phase.BACKWARD: "the backward pass",
    Phase.UPDATING: "the optimizer",
    Phase.AGREEING: "agreeing with the others",
    Phase.EVALUATING: "evaluation",
    Phase.SAVING: "a snapshot",
    Phase.LEAVING: "ending",
}


# The order of phases after which equally many steps are finished: a step is counted as its last phase begins.
ORDER: Final = (
    *(Phase.STARTING, Phase.JOINING, Phase.PREPARING, Phase.RESTORING),
    *(Phase.AGREEING, Phase.EVALUATING, Phase.SAVING),
    *(Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATING),
    Phase.LEAVING,
)


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where one rank stands.

    Attributes:
        rank: its number.
        step: steps that it has finished.
        phase: what it does.
        still: seconds that it has not moved for.
        answers: whether it printed its stack.
        frozen: whether its process is stopped.
        busy: whether it used the machine in the last seconds, it or what it has started.
        cores: how many it used.
        allowed: whether it may therefore take longer.
        place: of its main thread.
        node: a few words for the node that it is on.
    """

    rank: int
    step: int
    phase: Phase
    still: float
    answers: bool
    frozen: bool
    place: Place
    busy: bool = False
    cores: float = 0.0
    allowed: bool = False
    node: str = ""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why no rank moves: the first rank that is to blame, the steps that it has finished, and the sentence."""

    rank: int
    step: int
    text: str


def works(accounts: Sequence[Account]) -> bool:
    """Whether ranks work and get on by that, though none has moved for long.

    It takes one that uses the machine, and is not in a collective, where it might spin. But one that has come further
    than a rank that does nothing, and waits for nobody, will only come to wait for that one.
    """
    if _frozen(accounts):
        return False
    working = [one for one in accounts if one.allowed and one.place.wait in {"", BACKWARD}]
    idle = [one for one in accounts if not one.allowed and not one.place.wait]
    last = min(map(_position, idle), default=None)
    return any(last is None or _position(one) <= last for one in working)


def _position(one: Account) -> tuple[int, int]:
    return one.step, ORDER.index(Phase(one.phase))


def cause(accounts: Sequence[Account]) -> Cause:
    """The cause of a hang: the first of :data:`CAUSES` that some ranks show but not all, else what all share."""
    for suspected, words in CAUSES:
        found = suspected(accounts)
        if 0 < len(found) < len(accounts):
            others = [one for one in accounts if one not in found]
            return _told(found, f"{_been(found, words)}; {_waiting(others)}")
    words = next(words for suspected, words in COMMON if suspected(accounts))
    return _told(accounts, _been(accounts, words))


def _frozen(accounts: Sequence[Account]) -> list[Account]:
    return [one for one in accounts if one.frozen]


def _silent(accounts: Sequence[Account]) -> list[Account]:
    return [one for one in accounts if not one.answers]


def _behind(accounts: Sequence[Account]) -> list[Account]:
    furthest = max(one.step for one in accounts)
    return [one for one in accounts if one.step < furthest]


def _outside(accounts: Sequence[Account]) -> list[Account]:
    return [one for one in accounts if not one.place.wait]


def _apart(accounts: Sequence[Account]) -> list[Account]:
    """Those in another collective than most; where half of them are, those that have gone further."""
    counts = Counter((one.phase, one.place.wait) for one in accounts)
    (odd, _), *_ = sorted(counts.items(), key=lambda item: (item[1], -item[0][0]))
    return [one for one in accounts if (one.phase, one.place.wait) == odd]


# Who is to blame, and how what they do is told; the earlier row explains the later ones.
Row = tuple[Callable[[Sequence[Account]], Sequence[Account]], str]
FROZEN: Final[Row] = (_frozen, "stopped (by SIGSTOP, or a debugger) in {doing}")
SILENT: Final[Row] = (_silent, "in {doing}, and cannot print its stack")
BEHIND: Final[Row] = (_behind, "in {doing}")
OUTSIDE: Final[Row] = (_outside, "in {doing}")
APART: Final[Row] = (_apart, "in {doing}, which not all ranks have entered")
TOGETHER: Final[Row] = (list, "in {doing}, though all have entered it: the network, or a device?")
CAUSES: Final = (FROZEN, SILENT, BEHIND, OUTSIDE, APART)
COMMON: Final = (FROZEN, SILENT, OUTSIDE, TOGETHER)


def _told(found: Sequence[Account], text: str) -> Cause:
    return Cause(rank=found[0].rank, step=found[0].step, text=f"hang: {text}")


def _been(found: Sequence[Account], words: str) -> str:
    """``rank 2 (node 1, pod run-1) has been in data loading of step 121 for 34 s, at train.py:12 in __getitem__``."""
    return f"{_who(found)} {'has' if len(found) == 1 else 'have'} been {words.format(doing=doing(found[0]))}"


def doing(one: Account) -> str:
    """``data loading of step 121 for 34 s, at train.py:12 in __getitem__``, and whether it works there."""
    what = one.place.wait if one.place.wait and not one.frozen else DOING[Phase(one.phase)]
    where = f", at {one.place.line}" if one.place.line else ""
    work = f", busy (it used {one.cores:.1f} cores)" if one.busy else ""
    return f"{what}{_step(one)} for {one.still:.0f} s{where}{work}"


def _step(one: Account) -> str:
    """The step that a phase belongs to; the last phase of a step begins when the step is counted."""
    if one.phase in {Phase.EVALUATING, Phase.SAVING}:
        return f" after step {one.step}"
    return f" of step {one.step + (one.phase != Phase.AGREEING)}" if one.phase in STEP else ""


def _who(found: Sequence[Account]) -> str:
    """``rank 2 (node 1, pod run-1)``; of several ranks the numbers alone."""
    one = found[0]
    return f"rank {one.rank} ({one.node})" if len(found) == 1 else f"ranks {ranges(other.rank for other in found)}"


def _waiting(others: Sequence[Account]) -> str:
    """``ranks 0-1, 3 wait in the gradients' all-reduce``."""
    places = defaultdict(list)
    for one in others:
        places[one.place.wait or DOING[Phase(one.phase)]].append(one.rank)
    parts = [
        f"rank{'s'[: len(ranks) > 1]} {ranges(ranks)} wait{'s'[: len(ranks) == 1]} in {place}"
        for place, ranks in places.items()
    ]
    return ", ".join(parts)


def ranges(numbers: Iterable[int]) -> str:
    """``0-1, 3``."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(f"{members[0]}-{members[-1]}" if len(members) > 1 else f"{members[0]}")
    return ", ".join(runs)
