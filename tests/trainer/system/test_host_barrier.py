"""All processes pass a barrier or none does, at whatever point one is killed or asked to leave; real ones."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, product
from typing import Any, Final, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kittrain.system import host_barrier
from kittrain.system.host_barrier import CALL, NUMBER, BarrierError, HostBarrier, Listener

BARRIERS: Final = 4  # that the processes of a test come to
LIMIT: Final = 60.0  # seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="addresses without files are Linux's")


def connected(count: int) -> list[list[socket.socket]]:
    """For each of some processes, a connection to each of the others, as ``Listener.connect`` returns them."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for one, other in product(range(count), repeat=2):
        if one < other:
            ends[one][other], ends[other][one] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return [[row[place] for place in sorted(row)] for row in ends]


class Stops:
    """A connection that calls a function before and after each message that its owner sends or receives."""

    def __init__(self, real: socket.socket, reached: Callable[[], None]) -> None:
        self._real, self._reached = real, reached
        self._waits = False

    def send(self, message: bytes) -> int:
        self._reached()
        sent = self._real.send(message)
        self._reached()
        return sent

    def recv(self, size: int) -> bytes:
        if not self._waits:
            self._reached()
        self._waits = True
        message = self._real.recv(size)
        self._waits = False
        self._reached()
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Processes:
    """Processes that use a barrier, each after it has done its part; what each has passed comes back by a pipe.

    Args:
        count: of them.
        victim: who is killed, or asked to leave.
        action: of its sends and receives, before or after which that happens; beyond all: never.
        kill: whether it is killed.
    """

    def __init__(self, count: int, victim: int, action: int, *, kill: bool) -> None:
        self._ends = connected(count)
        self._victim, self._action, self._kill = victim, action, kill
        self._pipes = [os.pipe() for _ in range(count)]
        self.pids = [self._fork(place) for place in range(count)]
        for row in self._ends:
            for one in row:
                one.close()
        for _, written in self._pipes:
            os.close(written)

    def passed(self) -> list[int]:
        """How many barriers each process has passed."""
        found = []
        deadline = time.monotonic() + LIMIT
        for read, _ in self._pipes:
            content = b""
            while True:
                ready, _, _ = select.select([read], [], [], max(deadline - time.monotonic(), 0))
                if not ready:
                    for pid in self.pids:
                        os.kill(pid, signal.SIGKILL)
                    pytest.fail("a process waits for ever")
                if not (part := os.read(read, 1000)):
                    break
                content += part
            os.close(read)
            found.append(content.count(b"."))
        for pid in self.pids:
            os.waitpid(pid, 0)
        return found

    def _fork(self, place: int) -> int:
        if pid := os.fork():
            return pid
        with suppress(BaseException):
            self._use(place)
        os._exit(0)

    def _drop_others(self, place: int) -> None:
        """Keep only what this process needs: the others' ends have to end with them."""
        for one in chain.from_iterable(row for other, row in enumerate(self._ends) if other != place):
            one.close()
        for number, (read, written) in enumerate(self._pipes):
            os.close(read)
            if number != place:
                os.close(written)

    def _use(self, place: int) -> NoReturn:
        self._drop_others(place)
        done = self._pipes[place][1]
        actions = 0

        def reached() -> None:
            nonlocal actions
            if place == self._victim and actions == self._action:
                if self._kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                threading.Thread(target=own.leave).start()  # as of a rank, whose thread hears of the agent
            actions += 1

        peers: list[Any] = [Stops(one, reached) for one in self._ends[place]]
        own = HostBarrier(peers, timeout=LIMIT)
        try:
            for _ in range(BARRIERS):
                own.arrive()
                own.wait()
                os.write(done, b".")
        except BarrierError:
            own.close()
        os._exit(0)


ACTIONS: Final = 2 * 2 * BARRIERS  # of one of two processes: what it sends and receives, before and after


@pytest.mark.parametrize("action", range(ACTIONS + 1))
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "asked to leave"])
def test_two_pass_both_or_neither_wherever_one_is_killed_or_asked_to_leave(action: int, *, kill: bool) -> None:
    victim, other = Processes(2, 0, action, kill=kill).passed()
    sent = (action + 3) // 4
    if kill:
        assert (victim, other) == (action // 4, sent)
    else:  # its other thread may be late
        assert victim == other >= min(sent, BARRIERS)


@given(count=st.integers(2, 5), action=st.integers(0, 80), data=st.data())
@settings(max_examples=15, deadline=None)  # of two to five processes
def test_who_is_asked_to_leave_at_any_point_divides_nobody(count: int, action: int, data: st.DataObject) -> None:
    victim = data.draw(st.integers(0, count - 1))
    assert len(set(Processes(count, victim, action, kill=False).passed())) == 1


@given(count=st.integers(3, 5), action=st.integers(0, 80), data=st.data())
@settings(max_examples=15, deadline=None)  # of two to five processes
def test_who_is_killed_while_others_are_told_leaves_nobody_waiting(
    count: int, action: int, data: st.DataObject
) -> None:
    victim = data.draw(st.integers(0, count - 1))
    passed = Processes(count, victim, action, kill=True).passed()
    assert max(passed) - min(passed) <= 1


def pair() -> tuple[HostBarrier, HostBarrier]:
    (one,), (other,) = connected(2)
    return HostBarrier([one], timeout=LIMIT), HostBarrier([other], timeout=LIMIT)


def test_who_arrives_again_before_it_has_waited_waits_for_the_last_arrival_only() -> None:
    one, other = pair()
    for each in (one, other):
        each.arrive()
        each.arrive()
    for each in (one, other):
        each.wait()
    one.arrive()
    other.leave()
    with pytest.raises(BarrierError):
        one.wait()
    with pytest.raises(BarrierError):
        other.arrive()
    one.close()
    other.close()


def test_who_arrived_before_it_was_asked_to_leave_still_passes() -> None:
    one, other = pair()
    one.arrive()
    one.leave()
    threading.Timer(0.1, other.arrive).start()
    one.wait()
    other.wait()
    one.close()
    other.close()


@pytest.mark.parametrize("read", [True, False], ids=["before", "after"])
def test_the_arrival_of_who_then_ended_counts(*, read: bool) -> None:
    one, other = pair()
    if read:
        one.arrive()
        one.drop()
        other.arrive()
    else:
        other.arrive()
        one.arrive()
        one.drop()  # with the other's word unread
    other.wait()
    other.arrive()
    with pytest.raises(BarrierError, match="closed by peer"):
        other.wait()
    other.close()


def test_who_has_left_does_not_wait_for_ever_nor_who_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_barrier, "GRACE", 0.1)
    one, other = pair()
    one.arrive()
    one.leave()
    with pytest.raises(BarrierError, match="closed by peer"):
        one.wait()
    one.close()
    other.close()
    (end,), (silent,) = connected(2)
    alone = HostBarrier([end], timeout=0.1)
    alone.arrive()
    with pytest.raises(BarrierError, match="Socket Timeout"):
        alone.wait()
    alone.close()
    silent.close()


def test_a_forked_process_does_not_keep_a_barrier_open() -> None:
    one, other = pair()
    read, written = os.pipe()
    child = os.fork()
    if not child:
        os.write(written, b".")
        signal.pause()
    try:
        os.read(read, 1)
        one.drop()  # as when its process ends, whose child lives
        other.arrive()
        with pytest.raises(BarrierError, match="closed by peer"):
            other.wait()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(written)
    other.close()


def connect(listeners: list[Listener], **options: Any) -> list[list[socket.socket] | OSError]:
    """What each process gets, in threads."""
    known = [(one.address, one.key) for one in listeners]
    found: list[list[socket.socket] | OSError] = [OSError("not yet")] * len(listeners)

    def run(place: int) -> None:
        try:
            found[place] = listeners[place].connect(known, place, **options)
        except OSError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(listeners))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LIMIT)
    return found


def test_all_that_know_the_keys_are_connected_and_a_stranger_is_not() -> None:
    listeners = [Listener() for _ in range(3)]
    strangers = []
    for message in (CALL.pack(2, listeners[0].key ^ 1), b"?", CALL.pack(7, listeners[0].key)):
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stranger.connect(f"\0{listeners[0].address:05x}")
        stranger.send(message)
        strangers.append(stranger)
    found = connect(listeners)
    barriers = []
    for one in found:
        assert not isinstance(one, OSError)
        barriers.append(HostBarrier(one, timeout=LIMIT))
    for each in barriers:
        each.arrive()
    for each in barriers:
        each.wait()
        each.close()
    for stranger in strangers:
        stranger.settimeout(LIMIT)
        with suppress(ConnectionResetError):  # closed with its message unread
            assert stranger.recv(NUMBER.size) == b""
        stranger.close()
    for listener in listeners:
        listener.__exit__()


def test_who_answers_without_the_key_is_refused() -> None:
    with Listener() as own, Listener() as other:
        wrong = threading.Thread(target=_answer, args=(other,))
        wrong.start()
        with pytest.raises(ConnectionRefusedError):
            own.connect([(other.address, other.key), (own.address, own.key)], 1)
        wrong.join(LIMIT)


def _answer(listener: Listener) -> None:
    accepting = listener._listener
    accepting.settimeout(LIMIT)
    caller, _ = accepting.accept()
    caller.recv(CALL.size)
    caller.send(NUMBER.pack(0))
    caller.close()


def test_another_user_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_barrier, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    listeners = [Listener(), Listener()]
    assert all(isinstance(one, OSError) for one in connect(listeners))
    for listener in listeners:
        listener.__exit__()


def test_who_is_told_to_stop_does_not_wait_for_the_others() -> None:
    with Listener() as own, Listener() as other, pytest.raises(TimeoutError):
        own.connect([(own.address, own.key), (other.address, other.key)], 0, stop=lambda: True)
