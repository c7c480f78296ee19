"""Shows what the ranks do while no step is taken, as a fact: no cause, and no judgement. Pure.

A healthy job may stand still: it evaluates, one rank saves, a step compiles. So the nodes look after a while, ever more
seldom, and one sentence says where the ranks are, until one takes a step. Whether that is a hang is judged elsewhere
(``hang_detector``), but for ranks that all wait before the first step of a script's own loop, of which no heartbeat
tells: who only waits for others is not on its way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from kittrain.agent.rendezvous.diagnosis import (
    Diagnosis,
    RankStatus,
    calls_in_progress,
    diagnose,
    other_group,
    other_root,
    ranges,
)
from kittrain.agent.rendezvous.hang_detector import STACKS_TIMEOUT
from kittrain.agent.rendezvous.membership import Node
from kittrain.agent.rendezvous.stacks import BACKWARD, BUILD, NATIVE_WAITS, Location
from kittrain.system.calls import Call, contradiction
from kittrain.system.heartbeat import Phase

FIRST_DELAY: Final = 5.0  # seconds between two looks; doubles each time
MAX_DELAY: Final = 60.0
UNTOLD_DELAY: Final = 10.0  # at most, until there is something to tell
WAITING_TIMEOUT: Final = 900.0  # seconds, as long as the library's ranks may take to their first step
LIMIT: Final = 140  # characters of the sentence, which "no step for 1h05m: " heads
PLURALS: Final = {"is": "are", "has": "have", "does": "do", "tries": "try"}  # of the sentence; other verbs lose their s
POSSESSIVES: Final = {"its": "their", "itself": "themselves"}
SHOWN: Final = 3  # different places in it
ALONE: Final = 30.0  # seconds for which ranks without a group may be idle and nothing is told: they may download
APART: Final = 8.0  # seconds for which all ranks wait where they are, with no new call, until that is told
SLEEPS: Final = "sleeps"
APART_WORDS: Final = "; each waits for others"
OF_GROUPS: Final = ", of different groups"
EMPTY: Final = frozenset({"barrier", "new_group", *NATIVE_WAITS})  # exchange nothing that could take so long
ONE_WAY: Final = frozenset({"send", "recv"})  # a rank in one of them and a rank in the other may be at work together
ONE_WAY_APART: Final = 60.0  # the same for these: what isend() and irecv() have begun may be on its way meanwhile
SAID: Final = 60  # characters that have to be left for what one of them says
_SAYS: Final = " says: "
_DIGITS: Final = re.compile(r"\d+")
_SPARED: Final = (  # where a sentence is too long: functions after a line's number, and what is sent to or from a rank
    re.compile(r"(?<=\d) in \w+(?=,|$)"),
    re.compile(r" of \[[^]]*\] \w+(?= (?:from|to) )"),
)
_OBJECTS: Final = {"broadcast": "broadcast_object_list"}  # by what it exchanges first: the sizes of the objects
_ADDRESS: Final = re.compile(r"(\w+://[^/\s]+/)[^\s'\"<>]+")


class StandstillWatch:
    """Looks at the ranks of the current round while none takes a step. ``now`` is of any monotonic clock."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A round was formed or has ended."""
        self._quiet: set[Node] = set()
        self._begin()

    def _begin(self) -> None:
        self._requested_at: float | None = None
        self._next, self._delay = float("-inf"), FIRST_DELAY
        self._reports: dict[Node, Sequence[RankStatus]] = {}
        self._waiting: Sequence[RankStatus] = ()  # all ranks, while each only waits for others, before its first step
        self._waiting_since = 0.0
        self._places: list[tuple[int, Location, Call]] = []  # of all ranks, while all wait
        self._apart_at = 0.0  # from when on that is told
        self.text = ""  # where the ranks are; empty: they take steps, or nothing is known

    def record_heartbeat(self, node: Node, *, quiet: bool) -> None:
        """A node has reported whether none of its ranks has taken a step for unusually long."""
        (self._quiet.add if quiet else self._quiet.discard)(node)
        if not quiet:
            self._begin()

    def record(self, node: Node, statuses: Sequence[RankStatus]) -> None:
        """A node has reported where its ranks are."""
        self._reports[node] = statuses

    def should_look(self, group: Sequence[Node], now: float) -> bool:
        """Whether to ask all nodes now where their ranks are."""
        running = [node for node in group if not node.done]
        if self._requested_at is not None or now < self._next or not running or not self._quiet.issuperset(running):
            return False
        self._requested_at = now
        self._reports.clear()
        return True

    def look(self, group: Sequence[Node], now: float) -> float | None:
        """Once all have answered, or time is up: seconds since the last step. :attr:`text` says the rest."""
        if self._requested_at is None:
            return None
        complete = self._reports.keys() >= {node for node in group if not node.done}
        if not complete and now < self._requested_at + STACKS_TIMEOUT:
            return None
        self._requested_at, self._next = None, now + self._delay
        statuses = sorted((one for report in self._reports.values() for one in report), key=lambda one: one.rank)
        text = sentence(statuses, left=[node.index for node in group if node.done])
        apart = self._wait_apart(statuses if complete else (), now)
        if apart and text and _SAYS not in text:
            words = f"{OF_GROUPS if other_group(_running(statuses)) else ''}{APART_WORDS}"
            text = f"{_within(text, LIMIT - len(words))}{words}"
        if _without_counts(text) != _without_counts(self.text):
            self.text = text
        self._delay = min(2 * self._delay, MAX_DELAY if self.text else UNTOLD_DELAY)
        if self._places and not apart:
            self._next = min(self._next, self._apart_at)  # whether they are still there
        self._follow(statuses if complete else (), now)
        return min((one.stalled_seconds for one in statuses if not one.ended), default=0.0)

    def _wait_apart(self, statuses: Sequence[RankStatus], now: float) -> bool:
        """Whether all ranks have long been waiting in calls that cannot be one, so that none can end.

        Or in one call of all that exchanges nothing, or all send, or all receive, or not from or to one rank, or not of
        one group.
        """
        running = _running(statuses)
        waits = {one.location.wait for one in running}
        still = all(one.has_stack and not (one.busy or one.frozen) for one in running) and not waits & {"", BUILD}
        if not still or len(running) == 1 or not (_cannot_be_one(waits) or other_root(running) or other_group(running)):
            self._places = []
            return False
        places = [(one.rank, one.location, one.call) for one in running]
        if places != self._places:
            self._places, self._apart_at = places, now + (ONE_WAY_APART if waits <= ONE_WAY else APART)
        return bool(places) and now >= self._apart_at

    def _follow(self, statuses: Sequence[RankStatus], now: float) -> None:
        """Keep since when all ranks wait where they do."""
        running = [one for one in statuses if not one.ended]
        if not all(one.location.wait and not (one.busy or one.stepped) for one in running):
            running = []
        if [one.location for one in running] != [one.location for one in self._waiting]:
            self._waiting_since = now
        self._waiting = running

    def hang(self, now: float) -> Diagnosis | None:
        """The cause of a hang before the first step; None if there is none."""
        waited = now - self._waiting_since
        if not self._waiting or waited <= WAITING_TIMEOUT:
            return None
        return diagnose([replace(one, stalled_seconds=waited) for one in self._waiting])


def sentence(statuses: Sequence[RankStatus], *, left: Sequence[int] = ()) -> str:
    """``rank 1 sleeps at h.py:5, rank 0 waits in all_reduce at h.py:9``; empty if there is nothing to tell.

    Args:
        statuses: of all ranks that are known, in order.
        left: nodes whose ranks have all ended.
    """
    running = [one for one in statuses if not one.ended]
    if not running or all(one.phase is Phase.FINISHING for one in running):
        return ""
    if not any(one.stepped for one in running) and not _is_telling(running):
        return ""
    with_code = _sentence(statuses, running, left=left, code=True)
    return with_code if len(with_code) <= LIMIT else _within(_sentence(statuses, running, left=left, code=False), LIMIT)


def _sentence(statuses: Sequence[RankStatus], running: Sequence[RankStatus], *, left: Sequence[int], code: bool) -> str:
    """The sentence, of any length; with what is written where ranks sleep, or without."""
    waiting = {_words(one, where=False) for one in running if one.location.wait}
    one_name = len({one.location.wait for one in running if one.location.wait}) == 1  # else that tells enough
    unequal = one_name and contradiction(calls_in_progress(running)) is not None
    own = unequal and all(one.call.root == one.rank for one in running)
    groups: dict[tuple[bool, str, str], list[int]] = defaultdict(list)
    for one in statuses:  # ranks that wait for others come last; they explain nothing
        given = _given(one, own=own) if unequal else ""
        words = _words(one, where=len(waiting) > 1 or not _alone(one), given=given)
        written = one.location.code if code and words.startswith(SLEEPS) else ""
        groups[bool(one.location.wait), words, written].append(one.rank)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], len(item[1])))
    ended = [f"node{'s'[: len(left) > 1]} {ranges(left)} {'have' if len(left) > 1 else 'has'} ended"] if left else []
    parts = [*ended, *(_clause(ranks, *words) for (_, *words), ranks in ordered[:SHOWN])]
    hidden = sum(len(ranks) for _, ranks in ordered[SHOWN:])
    text = ", ".join([*parts, *([f"and {hidden} more"] if hidden else [])])
    told = next((one for one in running if one.said), None)
    says = f"; rank {told.rank}{_SAYS}" + _ADDRESS.sub(r"\1…", told.said) if told else ""
    if len(text + says) <= LIMIT or len(text) < LIMIT - SAID:
        text += says
    return text


def _running(statuses: Sequence[RankStatus]) -> list[RankStatus]:
    return [one for one in statuses if not one.ended]


def _cannot_be_one(waits: AbstractSet[str]) -> bool:
    """Whether no two of the ranks that wait in these calls can be making one together that takes time."""
    return not waits >= ONE_WAY if len(waits) > 1 else waits <= EMPTY | ONE_WAY


def _within(text: str, limit: int) -> str:
    """A sentence of at most so many characters: without what can be spared, the first ones first; else cut."""
    for spared in _SPARED:
        while len(text) > limit and (found := spared.search(text)):
            text = text[: found.start()] + text[found.end() :]
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _without_counts(text: str) -> tuple[str, str]:
    """What makes a sentence another one: the count of tries in what a rank says is nothing new, a place is."""
    places, _, said = text.partition(_SAYS)
    return places, _DIGITS.sub("", said)


def _is_telling(running: Sequence[RankStatus]) -> bool:
    """Whether ranks without a step so far stand still: some idly wait for others, data or a server, or complain.

    Or all are idle.

    Before the first step they may import, download or compile for as long as they like.
    """
    idle = [one for one in running if not one.busy]
    if any(one.location.wait or one.location.loads or one.location.tries or one.said for one in idle):
        return True
    return len(idle) == len(running) and all(one.grouped or one.stalled_seconds > ALONE for one in running)


def _alone(one: RankStatus) -> bool:
    """Whether the words say enough without a place in the script."""
    return one.location.wait == BACKWARD and not one.busy


def _given(one: RankStatus, *, own: bool) -> str:
    """What the collective that a rank waits in exchanges; ``own``: each rank names itself as the one that sends."""
    call = one.call
    if one.location.wait == _OBJECTS.get(call.name):
        call = replace(call, tensor="")  # the sizes of the objects are of no use
    elif one.location.wait != call.name:
        return ""
    return call.given.replace(f" rank {one.rank}", " itself") if own else call.given


def _words(one: RankStatus, *, where: bool, given: str = "") -> str:
    """The first row that applies, with the place in the script, and with what a collective exchanges."""
    wait, at = one.location.wait, one.location.line.removesuffix(" in <module>")
    worker = f", whose worker is at {one.location.worker}" if one.location.worker else ""
    rows = (
        (one.ended, "has ended"),
        (one.frozen, "is stopped (by SIGSTOP, or a debugger)"),
        (not one.has_stack, "does not show where it is"),
        (
            bool(one.location.exits and one.failed),
            f"has failed ({one.failed}), but its {one.location.exits} goes on{{at}}",
        ),
        (bool(one.location.exits), f"has ended its script, but not its {one.location.exits}{{at}}"),
        (one.location.loads, f"waits for its data loader{{at}}{worker}"),
        (wait == BACKWARD and one.busy, "is in its backward pass{at}"),
        (wait == BACKWARD, "waits in all_reduce of its backward pass{at}"),
        (bool(wait), f"waits in {wait}{given}{{at}}"),
        (one.busy, "is busy{at}"),
        (one.location.tries, "tries to reach a server{at}"),
        (bool(one.location.awaits), f"waits for {one.location.awaits}{{at}}{worker.replace('whose worker', 'which')}"),
        (True, f"{SLEEPS}{{at}}"),
    )
    return next(words for holds, words in rows if holds).replace("{at}", f" at {at}" if at and where else "")


def _clause(ranks: Sequence[int], words: str, code: str) -> str:
    """``rank 1 sleeps in `lock.acquire()` at h.py:5``, ``ranks 0-2 wait in barrier``."""
    verb, _, rest = words.partition(" ")
    if len(ranks) > 1:
        verb = PLURALS.get(verb, verb.removesuffix("s"))
        rest = " ".join(POSSESSIVES.get(word, word) for word in rest.split(" "))
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"
    return " ".join(filter(None, (who, verb, code and f"in `{code}`", rest)))
