"""Both ends prove that they know the key, and nothing is taken that was changed on its way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kittrain.rank.snapshots.peers import wire
from kittrain.rank.snapshots.peers.messages import Answer, Request
from kittrain.rank.snapshots.peers.wire import Channel, PeerLostError

KEY = b"k" * 32


def ends(here: socket.socket, there: socket.socket, *, key: bytes = KEY) -> tuple[Channel, Channel | Exception]:
    """Both channels; of the server an error if there is one."""
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(Channel, there, key, client=False)
        client = Channel(here, KEY, client=True)
    error = server.exception()
    return client, error if isinstance(error, PeerLostError) else server.result()


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    client, server = ends(*socket.socketpair())
    assert isinstance(server, Channel)
    yield client, server
    client.close()
    server.close()


def test_messages_and_files_arrive(pair: tuple[Channel, Channel], tmp_path: Path) -> None:
    client, server = pair
    client.send(Request(node=3, name="step-00000001-g0001", file="manifest.json"))
    assert server.receive(Request).node == 3
    content = bytes(range(256)) * 4096 * 2 + b"end"
    (tmp_path / "file").write_bytes(content)
    thread = threading.Thread(target=server.send_file, args=(tmp_path / "file", len(content)))
    thread.start()
    assert b"".join(map(bytes, client.receive_file(len(content)))) == content
    thread.join()
    server.send(Answer(size=None))  # and goes on
    assert client.receive(Answer).size is None


def test_another_secret_is_refused() -> None:
    with pytest.raises(PeerLostError, match="secret"):
        ends(*socket.socketpair(), key=b"x" * 32)


def test_who_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TIMEOUT", 0.05)
    here, there = socket.socketpair()
    with pytest.raises(PeerLostError), there:
        Channel(here, KEY, client=False)


class Between:
    """Passes bytes on in both directions, and changes one of them."""

    def __init__(self, at: int) -> None:
        self.client, inner = socket.socketpair()
        outer, self.server = socket.socketpair()
        threading.Thread(target=self._pass, args=(inner, outer, -1), daemon=True).start()
        threading.Thread(target=self._pass, args=(outer, inner, at), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, at: int) -> None:
        done = 0
        with suppress(OSError):  # an end is closed
            while data := bytearray(source.recv(1 << 16)):
                if done <= at < done + len(data):
                    data[at - done] ^= 1
                done += len(data)
                target.sendall(data)
        target.close()


@pytest.mark.parametrize("at", [0, 10, 40, 90, 96])
def test_a_changed_handshake_is_no_connection(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TIMEOUT", 1.0)  # nobody closes what is between
    between = Between(at)
    with pytest.raises(PeerLostError):
        ends(between.client, between.server)


HANDSHAKE = 2 * wire.NONCE + 1 + 2 * wire.MAC + 1


@pytest.mark.parametrize("at", [HANDSHAKE, HANDSHAKE + 70, HANDSHAKE + 80])
def test_a_changed_message_is_not_taken(at: int) -> None:
    between = Between(at)
    client, server = ends(between.client, between.server)
    assert isinstance(server, Channel)
    server.send(Answer(size=123456))
    with pytest.raises(PeerLostError):
        client.receive(Answer)


@pytest.mark.parametrize("at", [HANDSHAKE, HANDSHAKE + 99, HANDSHAKE + 110])
def test_a_changed_file_is_not_taken(at: int, tmp_path: Path) -> None:
    between = Between(at)
    client, server = ends(between.client, between.server)
    assert isinstance(server, Channel)
    (tmp_path / "file").write_bytes(b"a" * 100)
    server.send_file(tmp_path / "file", 100)
    with pytest.raises(PeerLostError, match="modified"):
        list(client.receive_file(100))


def test_a_file_that_breaks_off_is_not_taken(pair: tuple[Channel, Channel], tmp_path: Path) -> None:
    client, server = pair
    (tmp_path / "file").write_bytes(b"a" * 100)
    with pytest.raises(OSError, match="shorter"):
        server.send_file(tmp_path / "file", 200)
    server.close()
    with pytest.raises(PeerLostError, match="closed"):
        list(client.receive_file(200))


def test_a_message_is_bounded(pair: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_LINE", 1000)
    client, server = pair
    thread = threading.Thread(target=lambda: client.send(Request(node=1, file="x" * 200_000)), daemon=True)
    thread.start()
    with pytest.raises(PeerLostError, match="more than"):
        server.receive(Request)


def test_a_replayed_message_is_refused(pair: tuple[Channel, Channel]) -> None:
    client, server = pair
    client.send(Answer(size=1))
    assert server.receive(Answer).size == 1
    client._sent -= 1  # the same number again
    client.send(Answer(size=1))
    with pytest.raises(PeerLostError, match="modified"):
        server.receive(Answer)
