"""Listening on the rendezvous port, and connecting to it with retries."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from kittrain.system import port
from kittrain.system.port import PortBusyError
from tests.trainer.nodes import free_port


def test_a_local_rendezvous_listens_on_loopback_only() -> None:
    with port.listen("127.0.0.1", 0) as listener, socket.socket() as outsider:
        own = listener.getsockname()[1]
        assert outsider.connect_ex(("127.0.0.2", own)) != 0  # bound to all addresses, 127.0.0.2 would answer
        port.connect("127.0.0.1", own, deadline=time.monotonic() + 5).close()


def test_a_port_that_stays_busy_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        busy = other.getsockname()[1]
        with pytest.raises(PortBusyError, match=str(busy)):
            port.listen("127.0.0.1", busy, timeout=0)


def test_a_port_that_becomes_free_is_used() -> None:
    other = socket.create_server(("127.0.0.1", 0))
    threading.Timer(0.3, other.close).start()
    busy = other.getsockname()[1]
    with port.listen("127.0.0.1", busy, timeout=30) as listener:
        assert listener.getsockname()[1] == busy


def test_a_late_host_is_waited_for_and_reported() -> None:
    late = free_port()
    reasons: list[str] = []
    listening: list[socket.socket] = []
    threading.Timer(0.5, lambda: listening.append(port.listen("127.0.0.1", late))).start()
    port.connect("127.0.0.1", late, deadline=time.monotonic() + 30, waiting=reasons.append).close()
    listening[0].close()
    assert len(reasons) > 1
    assert all(f"127.0.0.1:{late}" in why for why in reasons)


def test_a_name_that_never_resolves_is_an_error() -> None:
    with pytest.raises(TimeoutError, match=r"name\.invalid:29400"):
        port.connect("name.invalid", 29400, deadline=0)


def test_the_backoff_grows_with_time_and_nodes() -> None:
    assert port.backoff(0.0, nodes=3) == port.MIN_BACKOFF
    assert port.backoff(10.0, nodes=3) == 0.5
    assert port.backoff(600.0, nodes=3) == port.MAX_BACKOFF
    assert port.backoff(0.0, nodes=10_000) == port.backoff(600.0, nodes=10_000) == 10.0
