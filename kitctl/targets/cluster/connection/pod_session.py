"""Runs a command in a container with the user's input and output, and forwards ports of a pod, over web sockets.

``pod_exec`` runs commands whose output kitctl itself reads. The first byte of each message is the number of its stream.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from websocket import ABNF, WebSocketConnectionClosedException, WebSocketException

from kitctl.base.errors import TargetError
from kitctl.targets import Session
from kitctl.targets.cluster.connection import pod_exec
from kitctl.targets.cluster.connection.api_errors import unreachable
from kitctl.targets.cluster.connection.kubeconfig import Connection
from kitctl.targets.cluster.connection.pod_exec import STATUS, STDERR, STDIN, STDOUT

CLOSES: Final = "v5.channel.k8s.io"  # in which stdin can end; servers before Kubernetes 1.29 know v4 only
CLOSE, RESIZE = 255, 4
LOOK_SECONDS: Final = 0.3  # between two looks at the size of the terminal
PIECE_BYTES: Final = 1 << 16
DRAIN_SECONDS: Final = 5.0  # for what is still on its way once the local end of a connection is closed


def run(connection: Connection, url: str, session: Session) -> int:
    """The exit code of an exec request's command.

    Raises:
        KitError: for the server's error response.
        TargetError: the command could not be run, or the connection broke.
    """
    ws = pod_exec.connect(connection, url, f"{CLOSES},{pod_exec.PROTOCOL}")
    status = bytearray()
    try:
        if session.stdin is not None:
            threading.Thread(target=_send_input, args=(ws, session), daemon=True).start()
        for stream, data in _messages(ws):
            if stream in {STDOUT, STDERR}:
                session.write(stream, data)
            elif stream == STATUS:
                status += data
    except (WebSocketException, OSError) as error:
        raise unreachable(connection.server, error) from error
    finally:
        ws.close(timeout=0)
    return pod_exec.exit_code(bytes(status))


def _messages(ws: Any) -> Iterator[tuple[int, bytes]]:
    """The stream's number and the data of each message; a session may be silent as long as it likes."""
    ws.settimeout(None)
    while True:
        kind, frame = ws.recv_data_frame(control_frame=True)
        if kind == ABNF.OPCODE_CLOSE:
            return
        if kind in {ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT} and len(frame.data) > 1:
            yield frame.data[0], frame.data[1:]


def _send_input(ws: Any, session: Session) -> None:
    """Send what the user types, and the size of the terminal whenever it has changed, until either end is closed."""
    assert session.stdin is not None
    size = None
    with suppress(WebSocketException, OSError, ValueError):
        while True:
            if session.tty and (now := shutil.get_terminal_size()) != size:
                size = now
                ws.send_binary(bytes([RESIZE]) + json.dumps({"Width": now.columns, "Height": now.lines}).encode())
            if not select.select([session.stdin], [], [], LOOK_SECONDS)[0]:
                continue
            data = os.read(session.stdin, PIECE_BYTES)
            if data:
                ws.send_binary(bytes([STDIN]) + data)
                continue
            if ws.getheaders().get("sec-websocket-protocol") == CLOSES:
                ws.send_binary(bytes([CLOSE, STDIN]))
            return


def forward(connection: socket.socket, connect: Callable[[], Any]) -> None:
    """Join an accepted connection to a port of a pod, until either end is closed.

    Raises:
        TargetError: the pod refuses it; with the reason.
    """
    try:
        ws = connect()
    except BaseException:
        connection.close()
        raise
    sender = threading.Thread(target=_send_connection, args=(ws, connection), daemon=True)
    sender.start()
    greeted, failure = set[int](), b""
    try:
        for stream, data in _messages(ws):
            if stream not in greeted:  # the first message of each stream has the port's number
                greeted.add(stream)
            elif stream == 0:
                connection.sendall(data)
            else:
                failure += data
    except (WebSocketException, OSError):
        pass  # either end is closed
    finally:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        with suppress(WebSocketException, OSError):
            ws.close(timeout=0)
    if failure:
        raise TargetError(failure.decode(errors="replace"))


def _send_connection(ws: Any, connection: socket.socket) -> None:
    """Send what the local end sends; when it has closed, wait a moment for the rest of the answer."""
    with suppress(WebSocketConnectionClosedException, WebSocketException, OSError):
        while data := connection.recv(PIECE_BYTES):
            ws.send_binary(bytes([0]) + data)
        ws.settimeout(DRAIN_SECONDS)
