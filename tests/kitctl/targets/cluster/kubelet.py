"""A kubelet's side of exec and portforward requests: real processes and real ports of this machine."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Final
from urllib.parse import parse_qs, urlsplit

MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BINARY, CLOSE = 0x82, 0x88
STDIN, STDOUT, STDERR, STATUS, RESIZE, ENDS = 0, 1, 2, 3, 4, 255


@dataclass
class Kubelet:
    """What the pods of a server are.

    Attributes:
        agent: process id of the agent of each pod.
        protocols: that the server knows, the one that it prefers first.
        sizes: of terminals, as they were set: columns and lines.
    """

    agent: int = 0
    protocols: tuple[str, ...] = ("v5.channel.k8s.io", "v4.channel.k8s.io")
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Answer an upgrade request, until the command or the connection has ended."""
        url = urlsplit(request.path)
        query = parse_qs(url.query)
        wanted = [one.strip() for one in request.headers["Sec-WebSocket-Protocol"].split(",")]
        chosen = next(one for one in self.protocols if one in wanted)
        accept = base64.b64encode(hashlib.sha1(request.headers["Sec-WebSocket-Key"].encode() + MAGIC).digest())
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        request.wfile.write(
            f"{head}Sec-WebSocket-Protocol: {chosen}\r\nSec-WebSocket-Accept: {accept.decode()}\r\n\r\n".encode()
        )
        messages = _Messages(request)
        if url.path.endswith("/portforward"):
            forward(messages, int(query["ports"][0]))
        else:
            self._execute(messages, query)
        messages.end()

    def _execute(self, messages: _Messages, query: dict[str, list[str]]) -> None:
        words = query["command"]
        if words[:1] == ["python"]:
            words = [sys.executable, *words[1:4], "--agent", str(self.agent), *words[4:]]
        tty = "tty" in query
        leader, follower = pty.openpty() if tty else (-1, -1)
        process = subprocess.Popen(
            words,
            stdin=follower if tty else subprocess.PIPE if "stdin" in query else subprocess.DEVNULL,
            stdout=follower if tty else subprocess.PIPE,
            stderr=follower if tty else subprocess.PIPE,
            start_new_session=True,
        )
        if tty:
            os.close(follower)
        stdin = leader if tty else process.stdin.fileno() if process.stdin else -1
        threading.Thread(target=self._input, args=(messages, stdin, process), daemon=True).start()
        outputs = {leader: STDOUT} if tty else {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}  # type: ignore[union-attr]
        while outputs:
            for fd in select.select([*outputs], [], [])[0]:
                data = b""
                with suppress(OSError):  # a terminal that its last process has closed
                    data = os.read(fd, 65536)
                if not data:
                    del outputs[fd]
                    continue
                messages.send(outputs[fd], data)
        code = process.wait()
        causes = {"details": {"causes": [{"reason": "ExitCode", "message": str(code if code >= 0 else 128 - code)}]}}
        messages.send(STATUS, json.dumps({"status": "Failure", **causes} if code else {"status": "Success"}).encode())

    def _input(self, messages: _Messages, stdin: int, process: subprocess.Popen[bytes]) -> None:
        for stream, data in messages.received():
            if stream == STDIN:
                os.write(stdin, data)
            elif stream == ENDS and process.stdin:
                process.stdin.close()
            elif stream == RESIZE:
                size = json.loads(data)
                self.sizes.append((size["Width"], size["Height"]))
                fcntl.ioctl(stdin, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))


class _Messages:
    """The messages of one web socket."""

    def __init__(self, request: BaseHTTPRequestHandler) -> None:
        self._request = request
        self._lock = threading.Lock()

    def send(self, stream: int, data: bytes) -> None:
        self._frame(BINARY, bytes([stream]) + data)

    def end(self) -> None:
        with suppress(OSError):
            self._frame(CLOSE, b"\x03\xe8")

    def _frame(self, kind: int, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else struct.pack(">BQ", 127, len(data))
        with self._lock:
            self._request.wfile.write(bytes([kind]) + size + data)

    def received(self) -> Iterator[tuple[int, bytes]]:
        """The stream and the data of each message, until the client closes the connection."""
        read = self._request.rfile.read
        with suppress(OSError, ValueError, IndexError):
            while head := read(2):
                size = head[1] & 127
                size = int.from_bytes(read({126: 2, 127: 8}[size])) if size > 125 else size
                mask, data = read(4), read(size)
                plain = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
                if head[0] == CLOSE:
                    return
                if head[0] == BINARY:
                    yield plain[0], plain[1:]


def forward(messages: _Messages, port: int) -> None:
    """Join the connection to a port of this machine."""
    greeting = struct.pack("<H", port)
    messages.send(0, greeting)
    messages.send(1, greeting)
    try:
        connection = socket.create_connection(("127.0.0.1", port))
    except OSError as error:
        reason = f"dial tcp4 127.0.0.1:{port}: connect: {(error.strerror or '').lower()}"
        told = (
            f"error forwarding port {port} to pod 449c071a, uid : failed to execute portforward in network namespace "
        )
        messages.send(1, f"{told}{reason}".encode())
        return

    def send() -> None:
        for stream, data in messages.received():
            if stream == 0:
                connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=send, daemon=True).start()
    with suppress(OSError):
        while data := connection.recv(65536):
            messages.send(0, data)
    connection.close()
