"""Agents without ranks of the scale benchmark: threads of a few processes, each with a connection to the server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, create_handler

from kittrain.agent.rendezvous.hub_backend import HubBackend
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.rounds.supervise import REJOIN_INTERVAL
from kittrain.job.env import NodeEnv, node_env
from kittrain.system.port import raise_fd_limit

ADDRESS = "127.0.0.1"
LIMIT = 120.0  # seconds for anything
POLL_SECONDS = 0.1  # of kitctl's agents, which read received messages
STOCK_POLL_SECONDS = 1.0  # of stock agents, which read and unpickle the whole state (torchrun: every 0.1 s)
BEFORE_DEATH = 1.0  # seconds until one agent dies; all others are waiting by then
OPERATIONS = 20  # keys that each agent sets and gets
SECRET = b"x" * 32  # of the run
VALUE = "x" * 200  # bytes, about the size of what torch's agents exchange per node


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """One agent's index, the number of agents and of those that a round needs, and where the server is."""

    index: int
    size: int
    port: int
    address: str = ADDRESS
    here: str = ADDRESS  # where the others reach the agent
    fewest: int = 0  # 0: a round may form with one agent less


class Agent(Protocol):
    """An agent without ranks. ``size`` agents form a round; after the death of one, the others do."""

    def __init__(self, config: AgentConfig) -> None:
        """Does not connect yet."""

    def connect(self) -> None:
        """Connect to the server."""

    def join(self) -> None:
        """Take part in the next round."""

    def die(self) -> None:
        """Disappear like a killed process."""

    def await_loss(self) -> None:
        """Wait until the loss of an agent is detected."""

    @property
    def store(self) -> Any:
        """The store of the round."""


def kit_env(config: AgentConfig) -> NodeEnv:
    """The environment of an agent of kitctl."""
    nodes = f"{config.fewest or config.size - 1}:{config.size}"
    endpoint = f"{config.address}:{config.port}"
    return node_env({"KIT_NODE_INDEX": str(config.index), "PET_NNODES": nodes, "PET_RDZV_ENDPOINT": endpoint})


class HubAgent:
    """An agent of kitctl, with default settings."""

    def __init__(self, config: AgentConfig) -> None:
        settings = RendezvousSettings(join_timeout=int(LIMIT), read_timeout=int(LIMIT))
        self._here = config.here
        self._backend = HubBackend(kit_env(config), settings, started_at=0, secret=SECRET)

    def connect(self) -> None:
        """See the protocol."""
        self._backend.connect(deadline=time.monotonic() + LIMIT)
        self.rendezvous = self._backend.handler(self._here)

    def join(self) -> None:
        """See the protocol."""
        self._info = self.rendezvous.next_rendezvous()

    def die(self) -> None:
        """See the protocol: its connection is closed."""
        self.rendezvous.leave()

    def await_loss(self) -> None:
        """See the protocol: it is notified."""
        _await(lambda: bool(self.rendezvous.num_nodes_waiting()), POLL_SECONDS)

    @property
    def store(self) -> Any:
        """See the protocol."""
        return self._info.store


class StockAgent:
    """An agent of torch, with the default settings of torchrun."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config

    def connect(self) -> None:
        """See the protocol."""
        config = self._config
        parameters = RendezvousParameters(
            "c10d",
            f"{ADDRESS}:{config.port}",
            "bench",
            config.size - 1,
            config.size,
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
        """See the protocol: its heartbeats stop, which is all that the others can detect."""
        self._rendezvous._stop_heartbeats()  # noqa: SLF001

    def await_loss(self) -> None:
        """See the protocol: it is not notified, but finds one agent less in the shared state."""
        _await(self._sees_loss, STOCK_POLL_SECONDS)

    def _sees_loss(self) -> bool:
        self._rendezvous.num_nodes_waiting()  # reads the state
        return len(self._rendezvous._state_holder.state.participants) < self._config.size  # noqa: SLF001

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
    """Run kitctl's hub in a process; yields its id."""
    config = AgentConfig(index=0, size=size, port=port)
    with hub_process(kit_env(config), RendezvousSettings(join_timeout=int(LIMIT)), secret=SECRET) as process:
        yield process.pid


@contextmanager
def store(size: int, port: int) -> Iterator[int]:  # noqa: ARG001  the store does not need it
    """Run torch's store in a process; yields its id."""
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
    raise_fd_limit()
    server = TCPStore(ADDRESS, port, is_master=True, wait_for_workers=False)
    time.sleep(1e6)
    del server


AGENTS: Mapping[str, type[Agent]] = {"kitctl": HubAgent, "stock c10d": StockAgent}
SERVERS = {"kitctl": hub, "stock c10d": store}

Times = tuple[float | None, ...]


def run_agents(connection: Connection, rival: str, configs: list[AgentConfig]) -> None:
    """Run a process's agents: for each command that is received, send when each agent has executed it."""
    raise_fd_limit()
    agents = [AGENTS[rival](config) for config in configs]
    with ThreadPoolExecutor(len(agents)) as threads:
        while command := connection.recv():
            name, *more = command
            done = [
                threads.submit(ACTIONS[name], agent, config, *more)
                for agent, config in zip(agents, configs, strict=True)
            ]
            connection.send([one.result() for one in done])
    os._exit(0)  # threads of stock agents would keep running


def ping(_agent: Agent, _config: AgentConfig) -> Times:
    """Do nothing; the answer shows that the modules are imported."""
    return ()


def form(agent: Agent, _config: AgentConfig) -> Times:
    """Connect and take part in a round."""
    return _when(agent.connect, agent.join)


def operate(agent: Agent, config: AgentConfig) -> Times:
    """Set and get keys of this agent."""

    def use() -> None:
        for number in range(OPERATIONS):
            key = f"bench/{config.index}/{number}"
            agent.store.set(key, VALUE)
            agent.store.get(key)

    return _when(use)


def survive(agent: Agent, config: AgentConfig, target: int) -> Times:
    """Die if this agent is the target; else detect the loss and take part in the next round."""
    if config.index == target:
        time.sleep(BEFORE_DEATH)
        agent.die()
        return (time.monotonic(),)
    return _when(agent.await_loss, agent.join)


def outlive(agent: Agent, config: AgentConfig) -> Times:
    """Notice that node 0 is gone, and take part in the next round at another one's hub; node 0's own agent ends."""
    if config.index == 0:
        return ()
    return _when(lambda: _await_end(agent), lambda: _join_elsewhere(agent))


def _await_end(agent: Agent) -> None:
    with suppress(RendezvousError):
        agent.await_loss()


def _join_elsewhere(agent: Agent) -> None:
    """Until a round is formed, as the supervisor of a node does."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            agent.connect()
            return agent.join()
        except RendezvousError:
            if time.monotonic() > deadline:
                raise
            time.sleep(REJOIN_INTERVAL)


def _when(*actions: Callable[[], None]) -> Times:
    """When each action was done; None for those that were not within the limit."""
    times: list[float | None] = []
    for action in actions:
        try:
            action()
            times.append(time.monotonic())
        except (RendezvousError, RuntimeError, OSError):  # torch's errors of a connection are RuntimeErrors
            return (*times, *[None] * (len(actions) - len(times)))
    return tuple(times)


ACTIONS: Mapping[str, Callable[..., Times]] = {
    "ping": ping,
    "form": form,
    "operate": operate,
    "survive": survive,
    "outlive": outlive,
}
