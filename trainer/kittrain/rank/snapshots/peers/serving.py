"""Serves what this node holds, and the directory, to the other nodes' processes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.held import of_manifest
from kittrain.rank.snapshots.folder.listing import list_folders
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, IncompatibleError
from kittrain.rank.snapshots.peers.directory import Directory
from kittrain.rank.snapshots.peers.messages import Answer, Request
from kittrain.rank.snapshots.peers.wire import STRANGER, Channel, PeerLostError

MAX_CONNECTIONS: Final = 2048  # at once: two from each node of a large job


class Server:
    """Answers until the process ends.

    Args:
        listener: to accept connections from.
        key: of the run.
        folder: of this node's snapshots.
        warn: called for an address that does not know the key, once.
    """

    def __init__(self, listener: socket.socket, key: bytes, folder: Path, warn: Callable[[str], None]) -> None:
        self._listener = listener
        self._key = key
        self._folder = folder
        self._warn = warn
        self._warned: set[str] = set()
        self._room = threading.Semaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._directory: Directory | None = None
        self.sent = 0

    def start(self) -> None:
        """Answer from now on, in threads."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def lead(self, directory: Directory | None) -> None:
        """Have the directory from now on, or no more."""
        with self._lock:
            self._directory = directory

    def end(self) -> None:
        """Nothing more is published here: others stay until what is here is uploaded, if this has the directory."""
        with self._lock:
            if self._directory:
                self._directory.ending = time.monotonic()

    def release(self) -> None:
        """It is uploaded, or given up: tell those who stay."""
        with self._lock:
            if self._directory:
                self._directory.released = True

    @property
    def awaited(self) -> bool:
        """Whether a node that stays has yet to be told that it may end."""
        with self._lock:
            return self._directory is not None and self._directory.waits(time.monotonic())

    def tell(self, request: Request) -> Answer:
        """Ask the directory, as others do."""
        with self._lock:
            if self._directory is None:
                return Answer()
            known = self._directory.round
            if known != request.round:
                return Answer(round=known)
            plan = self._directory.tell(request.node, request.held, now=time.monotonic(), ends=request.ends)
            return Answer(plan=plan, round=known)

    def _accept(self) -> None:
        while True:
            connection, (address, *_) = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, str(address)), daemon=True).start()

    def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            self._answer(Channel(connection, self._key, client=False))
        except PeerLostError as error:
            if str(error) == STRANGER and address not in self._warned:
                self._warned.add(address)
                self._warn(f"{address} asked for copies, and did not prove that it knows this run's secret")
        except OSError:
            pass  # a file is gone: the other end asks again
        finally:
            connection.close()
            self._room.release()

    def _answer(self, channel: Channel) -> None:
        while True:
            request: Request = channel.receive(Request, timeout=None)
            if not request.name:
                channel.send(self.tell(request))
                continue
            path, size = self._find(request)
            channel.send(Answer(size=size))
            if size is not None:
                channel.send_file(path, size)
                self.sent += size

    def _find(self, request: Request) -> tuple[Path, int | None]:
        """A file that this node holds, and its size. Only what a look at the folder finds is served."""
        for one in list_folders(self._folder):
            if one.published and one.path.name == request.name:
                with suppress(CorruptError, IncompatibleError, OSError):  # it is being replaced, or pruned
                    manifest, path = snapshot.read_manifest(one.path), one.path / request.file
                    names = {MANIFEST, *map(shards.name, of_manifest(one.path, manifest).numbers)}
                    if manifest.digest == request.digest and request.file in names:
                        return path, path.stat().st_size
        return self._folder, None
