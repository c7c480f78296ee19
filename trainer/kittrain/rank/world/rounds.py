"""A rank that outlives its round: it takes the round's end without ending itself, and waits for the next one.

Its agent writes to a pipe that the round is over, and later which rank it is in the next one. A thread of the rank
reads that: the main thread may wait in a collective for ranks that are gone, which ends only if the group is aborted.
Where any of this is not possible, the agent ends the rank and starts another one.

Why: decision 60.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from kittrain.job.env import RankEnv
from kittrain.outcome.failures import Failure
from kittrain.rank.world.step_barrier import CollectiveBarrier, barrier_of
from kittrain.system.child_processes import RANK, show_as
from kittrain.system.heartbeat import HeartbeatWriter, Phase
from kittrain.system.host_barrier import HostBarrier
from kittrain.system.open_sockets import open_sockets, shut_down
from kittrain.system.texts import of_error
from kittrain.torch_private.early import collectives_begun, counts_collectives
from kittrain.torch_private.ranks import around_new_groups, has_one_group

END_SECONDS: Final = 20.0  # from a lost peer until the agent says so: it may wait for a machine that is silent
POLL_SECONDS: Final = 0.002  # between two looks for the other ranks, at first
LONGEST_POLL: Final = 0.05  # likewise, if there are many of them: each look is a request to one store
POLLS_A_SECOND: Final = 10_000  # of all ranks
STORE_TIMEOUT: Final = timedelta(seconds=60)
STUCK_SECONDS: Final = 1.0  # in which the main thread sleeps, and does not notice that its round is over
STUCK_IN_COLLECTIVE_SECONDS: Final = 0.25  # likewise, where it waits for ranks whose connections have ended
STUCK_IN_LIBRARY_SECONDS: Final = 30.0  # likewise, where it waits for its own processes, threads or files
EVALUATION_SECONDS: Final = 30.0  # that the main thread may go on to evaluate
WATCH_SECONDS: Final = 0.02
TASKS: Final = Path("/proc/self/task")
COLLECTIVES: Final = (  # files whose functions call what waits for other ranks
    *(str(Path(torch.__file__).parent / name) for name in ("autograd/graph.py", "distributed/", "nn/parallel/")),
    str(Path(__file__).parents[1] / "training/step_sync.py"),
    str(Path(__file__).parents[2] / "torch_private/fsdp.py"),
)
LIBRARY: Final = sysconfig.get_path("stdlib") + os.sep
PACKAGES: Final = ("site-packages", "dist-packages")  # folders within it: an environment may see those of another one
LAZY: Final = "TORCH_GLOO_LAZY_INIT"  # gloo would connect later
MASTER: Final = ("MASTER_ADDR", "MASTER_PORT")
HERE: Final = "kit/here"  # in a round's store: how many ranks form its group
FURTHER: Final = "kit/further"  # likewise: how many make further groups


class RoundOverError(RuntimeError):
    """The agent has ended the round of this rank."""


class RoundLeftError(RoundOverError):
    """All ranks have finished the same step, and this one goes on in the next round."""


class CannotOutliveError(RuntimeError):
    """This rank cannot go on in its process: its agent starts another one."""


class Rounds:
    """The rounds of this rank's process, one after the other.

    Args:
        pipe: where the agent writes.
        heartbeat: tells the agent what this rank has done.

    Attributes:
        evaluates: whether the main thread does what may take long, and is done anew if the round ends.
    """

    def __init__(self, pipe: Path, heartbeat: HeartbeatWriter) -> None:
        self._pipe = pipe
        self._heartbeat = heartbeat
        self._changed = threading.Condition()
        self._ended = self._left = 0  # rounds that the agent has ended, and that this rank knows to be over
        self._asked = 0  # the round that the agent wants to end in agreement
        self._told = True  # whether the main thread is where it can be told that its round is over
        self._next: Mapping[str, str] | None = None
        self._before: frozenset[int] = frozenset()  # the sockets of this process before its group had any
        self._sockets: frozenset[int] = frozenset()  # those of the group
        self._forming = False
        self._barrier: HostBarrier | CollectiveBarrier | None = None
        self._store: dist.Store | None = None  # of the round
        self._further = False  # whether this rank makes process groups besides the round's
        self._groups: list[weakref.ref[object]] = []  # of the round
        self.evaluates = False

    def start(self) -> None:
        """Listen to the agent from now on."""
        around_new_groups(self._group)
        threading.Thread(target=self._listen, name="rounds", daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether the agent has ended the round that this rank is in."""
        return self._ended > self._left

    @property
    def asked(self) -> bool:
        """Whether the agent has asked this rank to leave its round together with all others, after a step."""
        return self._asked > self._left

    def leave(self, stopping: Callable[[], bool]) -> None:
        """After a step that is the last one of all ranks: wait for the agent's word that the round ends.

        Args:
            stopping: whether this rank has to end instead.

        Raises:
            RoundLeftError: it does; it is not raised if this rank has to end.
        """
        while not stopping():
            if self.asked or self.over:
                self._heartbeat.survives(can=True)
                raise RoundLeftError("the round has ended in agreement")
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Between two steps: a rank that is alone in its group is told by no collective.

        Raises:
            RoundOverError: the agent has ended the round.
        """
        if self.over:
            raise RoundOverError("the round is over")

    def ended_by(self, error: RuntimeError) -> bool:
        """Whether an error came because the round is over; waits for the agent if peers were lost."""
        self._told = True
        ends = self.over or self.asked
        if not ends and Failure(rank=0, exit_code=1, error=of_error(error), time=0).kind != "peer":
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self.over or self.asked, END_SECONDS)

    def next(self, *, renews: bool = False) -> Mapping[str, str]:
        """Leave the group, and wait for the next round; returns the variables that this rank has there.

        Args:
            renews: whether those that hold groups of the round get new ones.

        Raises:
            CannotOutliveError: the script holds one.
        """
        with self._changed:
            self._sockets, self._barrier, self._told = frozenset(), None, True
        if self.asked:
            self._ended = max(self._ended, self._asked)
            self._heartbeat.left(self._ended)  # the nodes meet while the group is taken down
        if dist.is_initialized():
            dist.destroy_process_group()
        if not (renews or self._hold_none()):
            raise CannotOutliveError("the script holds a process group of the last round: this rank is started anew")
        self._groups.clear()
        self._heartbeat.renew()
        self._heartbeat.beat(Phase.JOINING)
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None)
            assert self._next is not None
            told, self._left = self._next, self._ended
        # The address stays that of this process's start, which what it starts inherits: this group has its own store.
        os.environ.update({name: value for name, value in told.items() if name not in MASTER})
        show_as(f"{RANK}{told['RANK']}")
        return told

    def form(self, env: RankEnv, address: Mapping[str, str], *, timeout: timedelta) -> None:
        """Form the round's group, once all of its ranks are there: until then nobody waits where it cannot be told.

        Args:
            env: has this rank's number.
            address: of the round's store, in torchrun's variables.
            timeout: of the group's formation.

        Raises:
            RoundOverError: the agent has ended the round.
            RuntimeError: the group could not be formed.
        """
        store = self._open_store(env.rank, address["MASTER_ADDR"], int(address["MASTER_PORT"]))
        self._store, self._further = store, False
        self._meet(store, env.world_size)
        with self._connecting():
            dist.init_process_group(
                "gloo",
                store=dist.PrefixStore("kit/group", store),
                rank=env.rank,
                world_size=env.world_size,
                timeout=timeout,
            )

    def meet_for_groups(self, ranks: int) -> None:
        """Wait until all ranks make further groups: a new one comes to that in its script, after it has joined.

        Args:
            ranks: of the round.

        Raises:
            RoundOverError: the agent has ended the round.
        """
        assert self._store
        self._further = True
        self._meet(self._store, ranks, FURTHER)

    def barrier_of(self, group: dist.ProcessGroup, *, timeout: timedelta) -> HostBarrier | CollectiveBarrier:
        """The barrier of a group's ranks in each step of this round. Collective.

        Args:
            group: of the ranks that use it.
            timeout: for the others.

        Raises:
            BarrierError: the agent has ended the round.
        """
        barrier = barrier_of(group, timeout=timeout.total_seconds(), over=lambda: self.over)
        with self._changed:
            self._barrier = barrier
            if self.over:
                barrier.leave()
        return barrier

    @contextmanager
    def _group(self) -> Iterator[Callable[[object], None]]:
        """Around the making of a process group: this one's connections belong to the round."""
        if self._forming:  # the round's group
            yield self._made
            return
        if not self._further and self._store:
            self._further = True
            self._store.add(FURTHER, 1)
        with self._connecting():
            yield self._made

    def _made(self, group: object) -> None:
        if isinstance(group, dist.ProcessGroup):  # else this rank is not in it
            self._groups.append(weakref.ref(group))

    def _hold_none(self) -> bool:
        """Whether the script has let go of all groups of the round, which it would use again."""
        if any(one() for one in self._groups):
            gc.collect()  # it may be a part of a circle
        return not any(one() for one in self._groups)

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """In it connections of the round are made."""
        with self._changed:
            if self.over:
                raise RoundOverError("the round is over")
            self._before, self._forming, self._told = open_sockets(), True, False
        try:
            yield
        finally:
            with self._changed:
                self._forming = False
                self._sockets |= open_sockets() - self._before
                self._changed.notify_all()
        if self.over:
            raise RoundOverError("the round is over")

    def _open_store(self, rank: int, host: str, port: int) -> dist.TCPStore:
        """The round's store: of an agent, or of rank 0 where torch lacks libuv, which clients of an agent's need."""
        by_rank_0 = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False"
        if by_rank_0 and rank:
            self._await_port(host, port)
        return dist.TCPStore(
            host,
            port,
            is_master=by_rank_0 and not rank,
            wait_for_workers=False,
            timeout=STORE_TIMEOUT,
            use_libuv=os.environ.get("USE_LIBUV", "1") == "1",
        )

    def _await_port(self, host: str, port: int) -> None:
        pause = POLL_SECONDS
        while True:
            self.check()
            with suppress(OSError):
                socket.create_connection((host, port), timeout=1.0).close()
                return
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL)

    def _meet(self, store: dist.Store, ranks: int, key: str = HERE) -> None:
        pause = POLL_SECONDS
        longest = min(max(ranks / POLLS_A_SECOND, 2 * POLL_SECONDS), LONGEST_POLL)
        here = store.add(key, 1)
        while here < ranks:
            if self.over:
                raise RoundOverError("the round is over")
            time.sleep(pause)
            pause = min(2 * pause, longest)
            here = store.add(key, 0)

    def _listen(self) -> None:
        with suppress(OSError), self._pipe.open() as lines:
            for line in lines:
                order = json.loads(line)
                if "over" in order:
                    self._end(order["over"])
                elif "leave" in order:
                    with self._changed:
                        self._asked, self._next = order["leave"], None
                        self._changed.notify_all()
                else:
                    with self._changed:
                        self._next = order["round"]
                        self._changed.notify_all()

    def _end(self, number: int) -> None:
        """The round is over: make the main thread leave its collective, and tell the agent once it waits for nobody."""
        with self._changed:
            self._ended, self._next = number, None
            if self._barrier:
                self._barrier.leave()
            # Torch can abort NCCL's groups only.
            shut_down(self._sockets | (open_sockets() - self._before if self._forming else frozenset()))
            self._changed.notify_all()
        threading.Thread(target=self._watch, args=(number,), name="round-end", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: not self._forming)
        self._heartbeat.left(number)

    def _watch(self, number: int) -> None:
        """End this process if its main thread does not leave the round: another one takes its place.

        Gloo may not wake up a thread whose connections end while it sends, until the timeout of the collective. A
        thread that computes will come to a collective, and fail there; so will one that waits for its samples. The
        others wait for it meanwhile: not for an evaluation of minutes on one rank.
        """
        until = time.monotonic() + EVALUATION_SECONDS
        main = threading.main_thread().ident or 0
        clock = time.pthread_getcpuclockid(main)
        used, still = time.clock_gettime(clock), 0.0
        while self._ended == number and not self._told:
            if still >= _patience(main) or (self.evaluates and time.monotonic() > until):
                _end_process()
            time.sleep(WATCH_SECONDS)
            before, used = used, time.clock_gettime(clock)
            still = still + WATCH_SECONDS if used == before and _sleeps(os.getpid()) else 0.0


def waits_for_ranks(thread: int) -> bool:
    """Whether a thread is in a function that waits for other ranks, or computes."""
    return _file_of(thread).startswith(COLLECTIVES)


def waits_for_its_own(thread: int) -> bool:
    """Whether a thread is in a function of the standard library: it waits for its own processes or reads."""
    path = _file_of(thread)
    return path.startswith(LIBRARY) and not any(name in Path(path).parts for name in PACKAGES)


def _file_of(thread: int) -> str:
    """Where the function is that a thread is in; empty if it has ended."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  documented
    return frame.f_code.co_filename if frame else ""


def _patience(main: int) -> float:
    """Seconds that the main thread may sleep although its round is over."""
    if waits_for_ranks(main) and not others_work():
        return STUCK_IN_COLLECTIVE_SECONDS
    return STUCK_IN_LIBRARY_SECONDS if waits_for_its_own(main) else STUCK_SECONDS


def others_work() -> bool:
    """Whether another thread of this process is not asleep: gloo's may have yet to wake up the main one."""
    others = {int(one.name) for one in TASKS.iterdir()} - {threading.get_native_id()}
    return not all(map(_sleeps, others))


def _sleeps(task: int) -> bool:
    """Whether a thread of this process waits, and not for a processor, or has ended; see proc(5)."""
    try:
        status = (TASKS / str(task) / "stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "S"


def _end_process() -> NoReturn:
    error = dist.DistNetworkError("Connection closed by peer, and this rank's collective did not end with it")
    sys.stderr.write(f"lost its peers: {error}\n")
    sys.stderr.flush()
    get_error_handler().record_exception(error)
    os._exit(1)


def rounds_of(env: RankEnv, device: torch.device, backend: str, heartbeat: HeartbeatWriter) -> Rounds | None:
    """The rounds that this rank's process may outlive; None if it has one only.

    Equal on all ranks, as they form a group in different ways.
    """
    if env.round_pipe is None or env.job.policy.survivors != "live":
        return None
    if backend != "gloo" or device.type != "cpu" or os.environ.get(LAZY, "0") != "0":
        return None
    return Rounds(env.round_pipe, heartbeat)


def obstacle(*, groups: bool = False) -> str:
    """What a script has done before ``fit()`` that another process would have to repeat with all ranks; empty: nothing.

    A rank that replaces a lost one runs the script from its beginning, and the others do not.

    Args:
        groups: whether the others make the script's process groups anew.
    """
    if not groups and not has_one_group():
        return "the script has process groups of its own"
    if collectives_begun(distributed_c10d) or not counts_collectives(distributed_c10d):
        return "the script's ranks communicate before fit()"
    return ""
