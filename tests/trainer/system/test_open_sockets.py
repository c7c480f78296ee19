"""A connection that another thread waits at ends for it, and nothing else does."""

from __future__ import annotations

import socket
import threading

from kittrain.system.open_sockets import open_sockets, shut_down


def test_who_waits_at_a_connection_reads_its_end_and_what_listens_goes_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        before = open_sockets()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            served, _ = listener.accept()
            apart = socket.create_connection(other.getsockname())
            far, _ = other.accept()
            own = open_sockets() - before
            theirs = {apart, far}
            own -= {inode for inode in own if inode in {_inode(one) for one in theirs}}
            read: list[bytes] = []
            thread = threading.Thread(target=lambda: read.append(client.recv(1)))
            thread.start()
            shut_down(own)
            thread.join(60)
            assert read == [b""]
            apart.sendall(b"on")
            assert far.recv(2) == b"on"
            with socket.create_connection(listener.getsockname()):
                listener.accept()[0].close()
            for one in (client, served, apart, far):
                one.close()


def _inode(one: socket.socket) -> int:
    import os  # noqa: PLC0415  of this helper

    return os.fstat(one.fileno()).st_ino
