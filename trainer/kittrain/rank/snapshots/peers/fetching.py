"""Fetches shards from other nodes, verified: what is damaged there, or on its way, is not taken."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from kittrain.rank.snapshots.files import shards
from kittrain.rank.snapshots.files.shard_file import ShardFile
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.snapshot import MANIFEST, SCRATCH, IncompatibleError, Manifest
from kittrain.rank.snapshots.peers.directory import Plan, Task
from kittrain.rank.snapshots.peers.messages import Answer, Request
from kittrain.rank.snapshots.peers.wire import Channel, PeerLostError
from kittrain.system import files

T = TypeVar("T")
CONNECT: Final = 5.0  # seconds
MAX_MANIFEST: Final = 1 << 28  # bytes
UNUSABLE: Final = (CorruptError, IncompatibleError, PeerLostError)


class FetchError(Exception):
    """No source has a file as it should be."""


def connect(address: str, key: bytes) -> Channel:
    """Connect to another node's process.

    Raises:
        PeerLostError: it cannot be reached, or is another run's.
    """
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), timeout=CONNECT)
    except (OSError, ValueError) as error:
        raise PeerLostError(f"{address} does not answer: {error}") from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Channel(connection, key, client=True)


class Fetcher:
    """Brings shards into this node's folder.

    Args:
        folder: of this node's snapshots.
        node: its index.
        open: connects to an address; the connection is closed here.
        log: receives a line for each source that is not usable.
    """

    def __init__(self, folder: Path, node: int, open: Callable[[str], Channel], log: Callable[[str], None]) -> None:  # noqa: A002
        self._folder = folder
        self._node = node
        self._open = open
        self._log = log

    def fetch(self, plan: Plan) -> None:
        """Do a plan's tasks, each from the first source that has the shard as it should be.

        Raises:
            FetchError: none has.
            OSError: the folder cannot be written.
        """
        path = self._folder / plan.name
        with suppress(CorruptError, IncompatibleError):
            if path.exists() and (manifest := snapshot.read_manifest(path)).digest == plan.digest:
                for task in plan.tasks:
                    self._shard(plan, task, manifest, path)
                return
        if not path.exists():  # else the ranks are replacing it: the next plan says what is left
            self._anew(plan, path)

    def _anew(self, plan: Plan, path: Path) -> None:
        """Fetch shards of a snapshot of which there is nothing here."""
        scratch = self._folder / f"{SCRATCH}{uuid.uuid4().hex[:8]}-{plan.name}"
        files.make_folder(self._folder)
        scratch.mkdir()
        try:
            manifest = self._manifest(plan, scratch)
            for task in plan.tasks:
                self._shard(plan, task, manifest, scratch)
            files.sync_folder(scratch)
            with suppress(OSError):  # the ranks have published it meanwhile
                scratch.rename(path)
                files.sync_folder(self._folder)
        finally:
            snapshot.discard(scratch)

    def _manifest(self, plan: Plan, scratch: Path) -> Manifest:
        sources = dict.fromkeys(one for task in plan.tasks for one in task.sources)

        def check() -> Manifest:
            manifest = snapshot.read_manifest(scratch)
            if (manifest.name, manifest.digest) != (plan.name, plan.digest):
                raise CorruptError("it is that of another snapshot")
            return manifest

        return self._from_any(plan, MANIFEST, tuple(sources), scratch / MANIFEST, MAX_MANIFEST, check)

    def _shard(self, plan: Plan, task: Task, manifest: Manifest, folder: Path) -> None:
        name, expected = shards.name(task.number), manifest.shards[task.number]
        part = folder / f"{SCRATCH}{name}"
        self._from_any(plan, name, task.sources, part, expected.size, lambda: ShardFile(part, expected).verify())
        part.rename(folder / name)
        files.sync_folder(folder)

    def _from_any(
        self, plan: Plan, file: str, sources: Sequence[str], path: Path, limit: int, check: Callable[[], T]
    ) -> T:
        """Download a file from the first source whose bytes pass the check."""
        problems = []
        for source in sources:
            try:
                self._download(plan, file, source, path, limit)
                return check()
            except UNUSABLE as error:
                path.unlink(missing_ok=True)
                problems.append(f"{source}: {error}")
                if not isinstance(error, PeerLostError):
                    self._log(f"{plan.name} at {source} is damaged and not copied: {error}")
        raise FetchError(f"{plan.name}/{file} is not to be had: {'; '.join(problems) or 'nobody has it'}")

    def _download(self, plan: Plan, file: str, source: str, path: Path, limit: int) -> None:
        channel = self._open(source)
        try:
            channel.send(Request(node=self._node, name=plan.name, digest=plan.digest, file=file))
            answer: Answer = channel.receive(Answer)
            if answer.size is None or answer.size > limit:
                raise PeerLostError("it is not there" if answer.size is None else f"it has {answer.size} bytes")
            files.write_parts(path, channel.receive_file(answer.size))
        finally:
            channel.close()
