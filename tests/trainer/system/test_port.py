"""The rendezvous port: open to no one else, taken when it becomes free, and found when it is late."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from kittrain.system import port
from kittrain.system.port import PortBusyError
from tests.trainer.nodes import free_port


def test_a_rendezvous_of_this_machine_alone_is_not_open_to_others() -> None:
    with port.listen("127.0.0.1", 0) as listener, socket.socket() as outsider:
        own = listener.getsockname()[1]
        assert outsider.connect_ex(("127.0.0.2", own)) != 0  # were it bound to all addresses, 127.0.0.2 would answer
        port.reach("127.0.0.1", own, deadline=time.monotonic() + 5).close()


def test_a_port_that_stays_busy_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        busy = other.getsockname()[1]
        with pytest.raises(PortBusyError, match=str(busy)):
            port.listen("127.0.0.1", busy, patience=0)


def test_a_port_that_becomes_free_is_taken() -> None:
    other = socket.create_server(("127.0.0.1", 0))
    threading.Timer(0.3, other.close).start()
    busy = other.getsockname()[1]
    with port.listen("127.0.0.1", busy, patience=30) as listener:
        assert listener.getsockname()[1] == busy


def test_a_host_that_is_late_is_waited_for_and_that_is_told() -> None:
    late = free_port()
    told: list[str] = []
    listening: list[socket.socket] = []
    threading.Timer(0.5, lambda: listening.append(port.listen("127.0.0.1", late))).start()
    port.reach("127.0.0.1", late, deadline=time.monotonic() + 30, waiting=told.append).close()
    listening[0].close()
    assert len(told) > 1
    assert all(f"127.0.0.1:{late}" in why for why in told)


def test_a_name_that_never_resolves_is_told_at_the_end() -> None:
    with pytest.raises(TimeoutError, match=r"name\.invalid:29400"):
        port.reach("name.invalid", 29400, deadline=0)


def test_the_more_nodes_look_for_node_0_the_longer_each_of_them_waits() -> None:
    assert port.pause(0.0, nodes=3) == port.LOOK_AGAIN
    assert port.pause(10.0, nodes=3) == 0.5
    assert port.pause(600.0, nodes=3) == port.PATIENT
    assert port.pause(0.0, nodes=10_000) == port.pause(600.0, nodes=10_000) == 10.0
