"""Explains why no rank moves: turns the status of each rank into one sentence that names the cause. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kittrain.agent.rendezvous.stacks import BACKWARD, BUILD, GROUP, Location
from kittrain.system.calls import NO_CALL, Call, contradiction
from kittrain.system.heartbeat import STEP, Phase

PHASE_NAMES: Final[Mapping[Phase, str]] = {
    Phase.STARTING: "starting",
    Phase.JOINING: "joining the other ranks",
    Phase.PREPARING: "preparing to train",
    Phase.RESTORING: "restoring",
    Phase.DATA: "data loading",
    Phase.FORWARD: "the forward pass",
    Phase.BACKWARD: "the backward pass",
    Phase.UPDATING: "the optimizer",
    Phase.COMPUTING: "the computation",
    Phase.SYNCING: "synchronizing with the other ranks",
    Phase.EVALUATING: "evaluation",
    Phase.SAVING: "a snapshot",
    Phase.FINISHING: "finishing",
    Phase.SCRIPT: "the script's own loop",
}


# Phases in their order for the same number of finished steps: a step is counted as its last phase begins.
ORDER: Final = (
    *(Phase.STARTING, Phase.JOINING, Phase.PREPARING, Phase.SCRIPT, Phase.RESTORING),
    *(Phase.SYNCING, Phase.EVALUATING, Phase.SAVING),
    *(Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATING, Phase.COMPUTING),
    Phase.FINISHING,
)


@dataclass(frozen=True, kw_only=True)
class RankStatus:
    """What one rank is doing.

    Attributes:
        rank: its number.
        step: steps that it has finished.
        phase: what it is doing.
        stalled_seconds: how long it has not moved.
        has_stack: whether it printed its stack.
        frozen: whether its process is stopped (SIGSTOP or a debugger).
        busy: whether it or a child process has used the CPU or disks in the last seconds.
        cores: how many CPU cores it used.
        exempt: whether it may exceed the hang timeout because it is busy.
        location: of its main thread.
        stepped: whether it has taken a step since it started.
        grouped: whether it has joined a process group.
        ended: whether its process has.
        node: name of its node.
        call: the last collective that it has called, as far as it is known.
        failed: the error with which its script has ended, in a few words, while its process goes on; empty without one.
        said: what ended a thread of its script, or the error that it has just printed, in a line; empty without one.
    """

    rank: int
    step: int
    phase: Phase
    stalled_seconds: float
    has_stack: bool
    frozen: bool
    location: Location
    busy: bool = False
    cores: float = 0.0
    exempt: bool = False
    node: str = ""
    stepped: bool = False
    grouped: bool = False
    ended: bool = False
    call: Call = NO_CALL
    failed: str = ""
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why no rank moves: the first rank at fault, the steps that it has finished, and the sentence."""

    rank: int
    step: int
    text: str


def making_progress(statuses: Sequence[RankStatus]) -> bool:
    """Whether ranks still make progress, although none has moved for long.

    At least one rank must be busy outside of a collective, where it might spin. A busy rank that is ahead of an idle
    one outside of a collective does not count: it will only end up waiting for the idle one.
    """
    if _frozen(statuses):
        return False
    working = [one for one in statuses if one.exempt and one.location.wait in {"", BACKWARD}]
    idle = [one for one in statuses if not one.exempt and not one.location.wait]
    last = min(map(_position, idle), default=None)
    return any(last is None or _position(one) <= last for one in working)


def _position(one: RankStatus) -> tuple[int, int]:
    return one.step, ORDER.index(Phase(one.phase))


def diagnose(statuses: Sequence[RankStatus]) -> Diagnosis:
    """The cause of a hang: the first of :data:`CAUSES` that holds for some ranks but not all, else what all share."""
    for select, words in CAUSES:
        found = select(statuses)
        if 0 < len(found) < len(statuses):
            others = [one for one in statuses if one not in found]
            return _diagnosis(found, f"{_has_been(found, words)}; {_waiting(others)}")
    words = next(words for select, words in COMMON if select(statuses))
    return _diagnosis(statuses, _has_been(statuses, words))


def _frozen(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    return [one for one in statuses if one.frozen]


def _without_stack(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    return [one for one in statuses if not one.has_stack]


def _behind(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    furthest = max(one.step for one in statuses)
    return [one for one in statuses if one.step < furthest]


def _outside(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    return [one for one in statuses if not one.location.wait]


def _apart(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    """Ranks in another collective than the majority; on a tie, those in the later phase."""
    counts = Counter((one.phase, one.location.wait) for one in statuses)
    (odd, _), *_ = sorted(counts.items(), key=lambda item: (item[1], -item[0][0]))
    return [one for one in statuses if (one.phase, one.location.wait) == odd]


def _unequal(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    """Ranks whose tensors have another size than those of most others, in the same call of the same collective."""
    found = contradiction(calls_in_progress(statuses))
    odd = None if found is None else found[0][1]
    return [one for one in statuses if one.call == odd]


def other_root(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    """Ranks that name another rank than most others, from which or to which the same collective is."""
    found = contradiction(calls_in_progress(statuses))
    if found is None or found[0][1].name != found[1][1].name or found[0][1].root == found[1][1].root:
        return []
    return [one for one in statuses if one.call.root == found[0][1].root]


def other_group(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    """Ranks that wait in a collective of another group than most others, although all are in both groups."""
    calls = [(one.rank, one.call.group) for one in statuses if one.call.number and one.location.wait == one.call.name]
    counts = Counter(group for _, group in calls)
    if len(counts) < 2 or len(calls) < len(statuses):  # noqa: PLR2004  one whose call is not known may be on its way
        return []
    odd = min(counts, key=lambda group: counts[group])
    return [one for one in statuses if one.call.group == odd]


def _locked(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    return [one for one in statuses if one.location.wait == BUILD]


def _ungrouped(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    return [one for one in statuses if one.location.wait == GROUP]


def calls_in_progress(statuses: Iterable[RankStatus]) -> list[tuple[int, Call]]:
    """The calls of ranks that wait in a collective of their script's own: no others are noted."""
    return [(one.rank, one.call) for one in statuses if one.location.wait and one.location.wait != BACKWARD]


# Which ranks are at fault, and how the sentence describes them; an earlier row explains the later ones.
Row = tuple[Callable[[Sequence[RankStatus]], Sequence[RankStatus]], str]
FROZEN: Final[Row] = (_frozen, "stopped (by SIGSTOP, or a debugger) in {doing}")
WITHOUT_STACK: Final[Row] = (_without_stack, "in {doing}, and cannot print its stack")
BEHIND: Final[Row] = (_behind, "in {doing}")
OUTSIDE: Final[Row] = (_outside, "in {doing}")
APART: Final[Row] = (_apart, "in {doing}, which not all ranks have entered")
UNEQUAL: Final[Row] = (_unequal, "in {doing}, with {tensor}, where others have another size")
OTHER_GROUP: Final[Row] = (other_group, "in {doing}, of a group of ranks, where others are in one of another group")
OTHER_ROOT: Final[Row] = (other_root, "in {doing}, with one{given}, where others name another rank")
LOCKED: Final[Row] = (_locked, "in {doing}, for a lock file that no rank of this job holds")
UNGROUPED: Final[Row] = (_ungrouped, "in {doing}, although all ranks of this job are there: it is told of others")
TOGETHER: Final[Row] = (list, "in {doing}, although all have entered it: check the network and the devices")
CAUSES: Final = (FROZEN, WITHOUT_STACK, BEHIND, OUTSIDE, LOCKED, APART, OTHER_GROUP, OTHER_ROOT, UNEQUAL)
COMMON: Final = (FROZEN, WITHOUT_STACK, OUTSIDE, LOCKED, UNGROUPED, TOGETHER)


def _diagnosis(found: Sequence[RankStatus], text: str) -> Diagnosis:
    return Diagnosis(rank=found[0].rank, step=found[0].step, text=f"hang: {text}")


def _has_been(found: Sequence[RankStatus], words: str) -> str:
    """``rank 2 (node 1, pod run-1) has been in data loading of step 121 for 34 s, at train.py:12 in __getitem__``."""
    call = found[0].call
    words = words.format(doing=doing(found[0]), tensor=call.tensor, given=call.given)
    return f"{_who(found)} {'has' if len(found) == 1 else 'have'} been {words}"


def doing(one: RankStatus) -> str:
    """``data loading of step 121 for 34 s, at train.py:12 in __getitem__``, and whether the rank is busy."""
    what = one.location.wait if one.location.wait and not one.frozen else PHASE_NAMES[Phase(one.phase)]
    where = f", at {one.location.line}" if one.location.line else ""
    work = f", busy (it used {one.cores:.1f} cores)" if one.busy else ""
    return f"{what}{_step(one)} for {one.stalled_seconds:.0f} s{where}{work}"


def _step(one: RankStatus) -> str:
    """The step that a phase belongs to; the last phase of a step begins when the step is counted."""
    if one.phase in {Phase.EVALUATING, Phase.SAVING, Phase.SCRIPT}:
        return f" after step {one.step}"
    return f" of step {one.step + (one.phase != Phase.SYNCING)}" if one.phase in STEP else ""


def _who(found: Sequence[RankStatus]) -> str:
    """``rank 2 (node 1, pod run-1)``; for several ranks only their numbers."""
    one = found[0]
    return f"rank {one.rank} ({one.node})" if len(found) == 1 else f"ranks {ranges(other.rank for other in found)}"


def _waiting(others: Sequence[RankStatus]) -> str:
    """``ranks 0-1, 3 wait in the gradients' all-reduce``."""
    by_place = defaultdict(list)
    for one in others:
        by_place[one.location.wait or PHASE_NAMES[Phase(one.phase)]].append(one.rank)
    parts = [
        f"rank{'s'[: len(ranks) > 1]} {ranges(ranks)} wait{'s'[: len(ranks) == 1]} in {place}"
        for place, ranks in by_place.items()
    ]
    return ", ".join(parts)


def ranges(numbers: Iterable[int]) -> str:
    """``0-1, 3``."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(f"{members[0]}-{members[-1]}" if len(members) > 1 else f"{members[0]}")
    return ", ".join(runs)
