"""The store of a round's ranks, with builds of torch that have libuv and that do not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist

from kittrain.agent.rendezvous import rank_store
from kittrain.agent.rendezvous.rank_store import RankStore
from kittrain.system import port


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    rank_store._server.cache_clear()
    yield
    rank_store._server.cache_clear()


def test_the_first_nodes_agent_hosts_the_store_of_its_round() -> None:
    store = RankStore()
    number = store.reserve("127.0.0.1")
    store.begin(first=True)
    assert rank_store.is_supported()
    client = dist.TCPStore("127.0.0.1", number, is_master=False, timeout=timedelta(seconds=30))
    client.set("key", "value")
    assert client.get("key") == b"value"


def test_without_libuv_rank_0_gets_the_reserved_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(listener: socket.socket, *, libuv: bool) -> dist.TCPStore:
        listener.close()
        del libuv
        raise dist.DistStoreError("use_libuv was requested but PyTorch was built without libuv support")

    monkeypatch.setattr(rank_store, "host", refuse)
    store = RankStore()
    number = store.reserve("127.0.0.1")
    store.begin(first=True)
    assert not rank_store.is_supported()
    port.listen("127.0.0.1", number).close()


def test_a_port_stays_reserved_until_it_is_used() -> None:
    store = RankStore()
    number = store.reserve("127.0.0.1")
    store.begin(first=False)
    assert store.reserve("127.0.0.1") == number
    with pytest.raises(port.PortBusyError):
        port.listen("127.0.0.1", number, timeout=0)
    store.begin(first=True)
    assert store.reserve("127.0.0.1") != number
