"""Why a connection is lost, in words that do not depend on who noticed it first."""

from __future__ import annotations

import socket
import struct

import pytest

from kittrain.system.lines import CLOSED, PING, ConnectionLost, LineStream

RESETS = struct.pack("ii", 1, 0)  # the other end's kernel sends a reset, as it does to whoever has just written


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_was_closed_is_told_as_that_also_if_something_was_on_its_way(*, reset: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        lines = LineStream(socket.create_connection(server.getsockname()))
        there, _ = server.accept()
        if reset:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        there.close()
        with pytest.raises(ConnectionLost, match=CLOSED):
            lines.read(10.0)
        with pytest.raises(ConnectionLost, match=CLOSED):
            write_often(lines)
        lines.close()


def write_often(lines: LineStream) -> None:
    """The first line may still be taken."""
    for _ in range(100):
        lines.write(PING)
