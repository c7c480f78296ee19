"""Many agents without ranks, as threads of a few processes, each with a connection to the one place where all meet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, create_handler

from kittrain.env import NodeEnv, node_env
from kittrain.rendezvous.hub_backend import HubBackend
from kittrain.rendezvous.hub_process import hub_process
from kittrain.rendezvous.settings import RendezvousSettings
from kittrain.system.port import allow_connections

ADDRESS = "127.0.0.1"
LIMIT = 120.0  # seconds for anything
POLL_SECONDS = 0.1  # of our agents, which read what was sent to them
STOCK_POLL_SECONDS = 1.0  # of stock ones, which read and unpickle the state of all: torchrun does so ten times a second
BEFORE_DEATH = 1.0  # seconds until one agent dies, all others being on the watch by then
OPERATIONS = 20  # keys that each agent sets and gets
SECRET = b"x" * 32  # of the run
VALUE = "x" * 200  # bytes, as much as torch's agents tell each other of a node


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One agent's place: which of how many, and the port where they meet."""

    index: int
    size: int
    port: int


class Agent(Protocol):
    """An agent without ranks. ``size`` agents form a round, and so do those that are left when one is dead."""

    def __init__(self, seat: Seat) -> None:
        """Connect to nobody yet."""

    def connect(self) -> None:
        """Connect to the place where all meet."""

    def join(self) -> None:
        """Take part in the next round."""

    def die(self) -> None:
        """Be gone as a process that is killed."""

    def await_loss(self) -> None:
        """Wait until the rendezvous knows that an agent is dead."""

    @property
    def store(self) -> Any:
        """The store of the round."""


def seat_env(seat: Seat) -> NodeEnv:
    """What an agent of ours is told."""
    nodes = f"{seat.size - 1}:{seat.size}"
    return node_env(
        {"KIT_NODE_INDEX": str(seat.index), "PET_NNODES": nodes, "PET_RDZV_ENDPOINT": f"{ADDRESS}:{seat.port}"}
    )


class HubAgent:
    """One of ours, with its default settings."""

    def __init__(self, seat: Seat) -> None:
        settings = RendezvousSettings(join_timeout=int(LIMIT), read_timeout=int(LIMIT))
        self._backend = HubBackend(seat_env(seat), settings, started_at=0, secret=SECRET)

    def connect(self) -> None:
        """See the protocol."""
        self._backend.connect(deadline=time.monotonic() + LIMIT)
        self._rendezvous = self._backend.handler(ADDRESS)

    def join(self) -> None:
        """See the protocol."""
        self._info = self._rendezvous.next_rendezvous()

    def die(self) -> None:
        """See the protocol: its connection ends."""
        self._rendezvous.leave()

    def await_loss(self) -> None:
        """See the protocol: it is told."""
        _await(lambda: bool(self._rendezvous.num_nodes_waiting()), POLL_SECONDS)

    @property
    def store(self) -> Any:
        """See the protocol."""
        return self._info.store


class StockAgent:
    """One of torch's, with torchrun's default settings."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def connect(self) -> None:
        """See the protocol."""
        seat = self._seat
        parameters = RendezvousParameters(
            "c10d",
            f"{ADDRESS}:{seat.port}",
            "bench",
            seat.size - 1,
            seat.size,
            local_addr=ADDRESS,
            is_host="false",
            join_timeout=str(int(LIMIT)),
        )
        backend, store = create_backend(parameters)
        self._rendezvous: DynamicRendezvousHandler = create_handler(store, backend, parameters)

    def join(self) -> None:
        """See the protocol."""
        self._info: RendezvousInfo = self._rendezvous.next_rendezvous()

    def die(self) -> None:
        """See the protocol: its signs of life stay away, which is all that the others could notice."""
        self._rendezvous._stop_heartbeats()  # noqa: SLF001

    def await_loss(self) -> None:
        """See the protocol: it is not told, but finds one agent fewer in the state that all share."""
        _await(self._sees_loss, STOCK_POLL_SECONDS)

    def _sees_loss(self) -> bool:
        self._rendezvous.num_nodes_waiting()  # reads the state
        return len(self._rendezvous._state_holder.state.participants) < self._seat.size  # noqa: SLF001

    @property
    def store(self) -> Any:
        """See the protocol."""
        return self._info.store


def _await(happened: Callable[[], bool], pause: float) -> None:
    deadline = time.monotonic() + LIMIT
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(pause)


@contextmanager
def hub(size: int, port: int) -> Iterator[int]:
    """Host our meeting place; gives the id of its process."""
    seat = Seat(index=0, size=size, port=port)
    with hub_process(seat_env(seat), RendezvousSettings(join_timeout=int(LIMIT)), secret=SECRET) as process:
        yield process.pid


@contextmanager
def store(size: int, port: int) -> Iterator[int]:  # noqa: ARG001  it may be any number
    """Host torch's, in a process of its own, too."""
    context = get_context("spawn")
    process = context.Process(target=_serve, args=(port,), daemon=True)
    process.start()
    assert process.pid
    try:
        yield process.pid
    finally:
        process.kill()
        process.join()


def _serve(port: int) -> None:
    allow_connections()
    kept = TCPStore(ADDRESS, port, is_master=True, wait_for_workers=False)
    time.sleep(1e6)
    del kept


AGENTS: Mapping[str, type[Agent]] = {"kitctl": HubAgent, "stock c10d": StockAgent}
HOSTS = {"kitctl": hub, "stock c10d": store}

Moments = tuple[float | None, ...]


def crew(connection: Connection, rival: str, seats: list[Seat]) -> None:
    """A process's agents: each message is what all of them do next; the answer is when each had done it."""
    allow_connections()
    agents = [AGENTS[rival](seat) for seat in seats]
    with ThreadPoolExecutor(len(agents)) as threads:
        while order := connection.recv():
            name, *more = order
            done = [threads.submit(ACTS[name], agent, seat, *more) for agent, seat in zip(agents, seats, strict=True)]
            connection.send([one.result() for one in done])
    os._exit(0)  # stock's threads would go on


def wake(_agent: Agent, _seat: Seat) -> Moments:
    """Do nothing: whoever answers has imported what it needs."""
    return ()


def form(agent: Agent, _seat: Seat) -> Moments:
    """Connect and take part in a round."""
    return _when(agent.connect, agent.join)


def operate(agent: Agent, seat: Seat) -> Moments:
    """Set and get keys of one's own."""

    def use() -> None:
        for number in range(OPERATIONS):
            key = f"bench/{seat.index}/{number}"
            agent.store.set(key, VALUE)
            agent.store.get(key)

    return _when(use)


def survive(agent: Agent, seat: Seat, victim: int) -> Moments:
    """Be the one that dies, or notice that and take part in the next round."""
    if seat.index == victim:
        time.sleep(BEFORE_DEATH)
        agent.die()
        return (time.monotonic(),)
    return _when(agent.await_loss, agent.join)


def _when(*acts: Callable[[], None]) -> Moments:
    """When each was done; None for those that were not in time."""
    moments: list[float | None] = []
    for act in acts:
        try:
            act()
            moments.append(time.monotonic())
        except (RendezvousError, RuntimeError, OSError):  # torch's errors of a connection are RuntimeErrors
            return (*moments, *[None] * (len(acts) - len(moments)))
    return tuple(moments)


ACTS: Mapping[str, Callable[..., Moments]] = {"wake": wake, "form": form, "operate": operate, "survive": survive}
