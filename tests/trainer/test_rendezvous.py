"""The store on node 0, who may connect to it, and leaving without closing it."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from tests.trainer.nodes import free_port
from trainer import rendezvous
from trainer.env import EnvError, NodeEnv, node_env
from trainer.rendezvous import Knobs, PortBusyError

KNOBS = Knobs(last_call_timeout=1)


def node(port: int, *, nodes: str = "1:2") -> NodeEnv:
    return node_env({"PET_NNODES": nodes, "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}"})


def test_a_store_of_this_machine_alone_is_not_open_to_others() -> None:
    env = node(free_port())
    store = rendezvous.host_store(env)
    with socket.socket() as outsider:  # were it bound to all addresses, 127.0.0.2 would answer
        assert outsider.connect_ex(("127.0.0.2", env.rendezvous_port)) != 0
    store.set("key", "value")
    assert rendezvous.connect(env, KNOBS, deadline=time.monotonic() + 5).get("key") == b"value"


def test_a_port_that_stays_busy_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortBusyError, match=str(port)):
            rendezvous.host_store(node(port), patience=0)


def test_a_port_that_becomes_free_is_taken() -> None:
    other = socket.create_server(("127.0.0.1", 0))
    threading.Timer(0.3, other.close).start()
    port = other.getsockname()[1]
    assert rendezvous.host_store(node(port), patience=30).port == port


def test_a_store_that_is_late_is_waited_for_and_that_is_told() -> None:
    env = node(free_port())
    stores: list[dist.TCPStore] = []
    told: list[str] = []
    threading.Timer(0.5, lambda: stores.append(rendezvous.host_store(env))).start()
    rendezvous.connect(env, KNOBS, deadline=time.monotonic() + 30, waiting=told.append)
    assert len(told) == 1
    assert f"127.0.0.1:{env.rendezvous_port}" in told[0]


def test_a_name_that_never_resolves_is_told_at_the_end() -> None:
    env = node_env({"PET_RDZV_ENDPOINT": "name.invalid:29400"})
    with pytest.raises(RendezvousTimeoutError, match=r"name\.invalid:29400"):
        rendezvous.connect(env, KNOBS, deadline=0)


def test_a_node_that_left_is_gone_at_once_and_the_rendezvous_stays_open() -> None:
    env = node(free_port())
    host = rendezvous.host_store(env)

    def join() -> DynamicRendezvousHandler:
        store = rendezvous.connect(env, KNOBS, deadline=time.monotonic() + 5)
        return rendezvous.join(env, KNOBS, store, local_addr="127.0.0.1")

    first, second = join(), join()
    assert first.next_rendezvous().world_size == 1
    rendezvous.leave(first)
    assert not second.is_closed()  # asks the store for the state
    assert second._state_holder.state.participants == {}
    assert second.next_rendezvous().world_size == 1
    rendezvous.leave(second)
    del host


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", ""])
def test_times_are_positive_whole_seconds(text: str) -> None:
    with pytest.raises(EnvError, match="join_timeout"):
        Knobs.of({"join_timeout": text})


def test_keys_of_torchruns_own_are_left_to_it() -> None:
    assert Knobs.of({"is_host": "true", "last_call_timeout": "9"}) == Knobs(last_call_timeout=9)
