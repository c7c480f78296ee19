"""Faults of what a job stores, for drills: a bit of a snapshot that is flipped, a mirror whose store does not take it.

In the place of the store comes a server on this machine, to which the process that uploads sends what it would send to
the store: it has the same requests, answers and timeouts as with the real fault. It ends by itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from kittrain.job.env import rank_env

UPLOADER: Final = b"\0kittrain.rank.snapshots.mirror\0upload\0"
COPIER: Final = b"\0kittrain.rank.snapshots.peers\0"
SUBSTITUTE: Final = ".substitute"  # suffix of the file that tells the uploader: kittrain.rank.snapshots.mirror.store
MARK: Final = ".copies.json"  # kittrain.rank.snapshots.folder.copies_status
COPIED_SECONDS: Final = 20.0  # until the newest snapshot has its copies
POLL: Final = 0.05
LOOPBACK: Final = "127.0.0.1"
ANSWERS: Final[Mapping[str, tuple[int, str] | None]] = {  # status, and code in the body; None: no answer at all
    "UNAVAILABLE": (503, "SlowDown"),
    "DENIED": (403, "AccessDenied"),
    "CUT": None,
}


def damage(copier: int, rank: int) -> None:
    """Flip a bit of a rank's shard of the newest snapshot, of which another node has a copy.

    Args:
        copier: the process that keeps the node's copies.
        rank: of this node.

    Raises:
        SystemExit: there is no such copy, or nothing would read the shard.
    """
    lines = Path(f"/proc/{copier}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    env = rank_env(dict(line.split("=", 1) for line in lines if "=" in line))
    if env.job.policy.survivors == "live":
        sys.exit("its ranks live on, and read no snapshot; fix: drill a job with policy.survivors: restart")
    assert env.snapshot_dir
    path = _newest_copied(env.snapshot_dir) / f"shard-{rank:05}.bin"
    if not path.exists():
        sys.exit(f"{path.name} of {path.parent.name} is not on this node")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    print(f"flipped a bit of {path}", flush=True)  # noqa: T201  kitctl reads it


def _newest_copied(folder: Path) -> Path:
    """The newest snapshot in a node's folder, once it has all its copies."""
    until = time.monotonic() + COPIED_SECONDS
    while time.monotonic() < until:
        newest = max(folder.glob("step-*"), key=lambda path: path.name.split("-")[::-1], default=None)
        with suppress(OSError, ValueError):
            mark = json.loads((folder / MARK).read_bytes())
            if newest and newest.name.startswith(f"step-{mark['copied_step'] or 0:08}-"):
                return newest
        time.sleep(POLL)
    sys.exit("its newest snapshot has no copy on another node yet")


def substitute(uploader: int, fault: str, seconds: float) -> None:
    """Stand in for the store of the process that uploads, from now on and for some seconds, in the background."""
    words = Path(f"/proc/{uploader}/cmdline").read_bytes().split(b"\0")
    told = Path(os.fsdecode(words[words.index(b"--status") + 1])).with_suffix(SUBSTITUTE)
    listener, until = socket.create_server((LOOPBACK, 0), backlog=0), time.monotonic() + seconds
    port = listener.getsockname()[1]
    print(f"port {port} stands in for the mirror's store for {seconds:g} s", flush=True)  # noqa: T201  as above
    if os.fork():
        return
    os.setsid()
    for number in range(3):  # else who has started this waits for it
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    answer = ANSWERS[fault]
    kept = _refuse_all(listener, *answer) if answer else _drop_all(listener)
    content = json.dumps({"port": port, "until": until}).encode()
    told.with_suffix(".new").write_bytes(content)
    told.with_suffix(".new").replace(told)
    while time.monotonic() < until and _has(told, content):  # the uploader deletes it if training ends before
        time.sleep(POLL)
    if _has(told, content):
        told.unlink(missing_ok=True)
    del kept


def _has(path: Path, content: bytes) -> bool:
    with suppress(OSError):
        return path.read_bytes() == content
    return False


def _drop_all(listener: socket.socket) -> list[socket.socket]:
    """Fill the listener's queue: the kernel drops what comes then, as a network that is cut does."""
    filling = [socket.socket() for _ in range(2)]
    for one in filling:
        one.settimeout(0)
        one.connect_ex(listener.getsockname())
    return filling


def _refuse_all(listener: socket.socket, status: int, code: str) -> ThreadingHTTPServer:
    """Give each request the same answer."""
    body = f"<Error><Code>{code}</Code><Message>kitctl drill</Message></Error>".encode()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            left = int(self.headers.get("Content-Length") or 0)
            while left > 0 and (part := self.rfile.read(min(left, 1 << 16))):
                left -= len(part)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815  names of the library

    server = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
