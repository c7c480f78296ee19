"""Runs a command in a container of a pod, over a web socket.

Its stdout arrives as bytes, in order and separate from its stderr, with the connection's flow control. A pod's log
mixes both, and may be rotated before it is read. The protocol is Kubernetes' v4.channel.k8s.io: the first byte of each
message is the number of its stream.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from kubernetes.client import Configuration
from kubernetes.stream.ws_client import get_websocket_url, websocket_proxycare
from websocket import ABNF, WebSocket, WebSocketBadStatusException, WebSocketException, WebSocketTimeoutException

from kitctl.base.deadline import within
from kitctl.base.errors import TargetError
from kitctl.targets.cluster.connection.api_errors import error_from_status, unreachable
from kitctl.targets.cluster.connection.kubeconfig import Connection, Header
from kitctl.targets.conflicts import trainer_failed

PROTOCOL: Final = "v4.channel.k8s.io"
OPEN_SECONDS: Final = 35.0  # to connect and to agree on the protocol; web sockets have no limit of their own
SILENT_SECONDS: Final = 600.0  # without a byte: while it deletes a large folder, a command prints nothing
STDIN, STDOUT, STDERR, STATUS = 0, 1, 2, 3


def stream_stdout(connection: Connection, url: str, stdin: Iterable[bytes] = ()) -> Iterator[bytes]:
    """The stdout of an exec request's command, as it arrives.

    Args:
        connection: with certificates, proxies, and who the user is.
        url: of the request, with http or https as the scheme.
        stdin: sent before anything is read; this protocol cannot close it, so the command has to know its end.

    Raises:
        KitError: for the server's error response.
        TargetError: the command failed, or the connection broke, or was silent for ``SILENT_SECONDS``, before it ended.
    """
    errors, status = bytearray(), bytearray()
    socket = connect(connection, url)
    socket.settimeout(SILENT_SECONDS)
    try:
        for piece in stdin:
            socket.send_binary(bytes([STDIN]) + piece)
        for stream, data in _messages(socket):
            if stream == STDOUT:
                yield data
            elif stream == STDERR:
                errors += data
            elif stream == STATUS:
                status += data
    except (WebSocketException, OSError) as error:
        raise unreachable(connection.server, error) from error
    finally:
        socket.close()
    if exit_code(bytes(status)):
        raise trainer_failed(bytes(errors))


def connect(connection: Connection, url: str, protocols: str = PROTOCOL) -> Any:
    """A web socket to a pod, for an exec or a portforward request.

    Raises:
        KitError: for the server's error response.
        TargetError: it cannot be reached.
    """
    headers = [("sec-websocket-protocol", protocols), *connection.identity()]
    try:
        return within(OPEN_SECONDS, partial(_open, connection.configuration, get_websocket_url(url), headers))
    except WebSocketBadStatusException as error:
        raise error_from_status(error.status_code, error.resp_body or b"", "Pod") from error
    except (WebSocketException, OSError) as error:
        raise unreachable(connection.server, error) from error


def _open(configuration: Configuration, url: str, headers: Iterable[Header]) -> WebSocket:
    """A web socket as the client's ``create_websocket`` makes it, which sends no header but the token, however."""
    verify = url.startswith("wss://") and configuration.verify_ssl
    options = {
        "cert_reqs": ssl.CERT_REQUIRED if verify else ssl.CERT_NONE,
        "ca_certs": configuration.ssl_ca_cert if verify else None,
        "check_hostname": configuration.assert_hostname if verify else None,
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    socket = WebSocket(sslopt={key: value for key, value in options.items() if value is not None})
    with_proxy = websocket_proxycare({"header": [": ".join(one) for one in headers]}, configuration, url, None)
    socket.connect(url, **with_proxy)  # type: ignore[no-untyped-call]
    return socket


def _messages(socket: Any) -> Iterator[tuple[int, bytes]]:
    """The stream's number and the data of each message, until the server closes the connection.

    Raises:
        WebSocketTimeoutException: no data for ``SILENT_SECONDS``; a server's pings are none.
    """
    heard = time.monotonic()
    while True:
        kind, frame = socket.recv_data_frame(control_frame=True)
        if kind in {ABNF.OPCODE_PING, ABNF.OPCODE_PONG}:
            if time.monotonic() > heard + SILENT_SECONDS:
                raise WebSocketTimeoutException(f"no data within {SILENT_SECONDS:.0f} s")
            continue
        if kind == ABNF.OPCODE_CLOSE:
            return
        if kind in {ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT} and len(frame.data) > 1:
            yield frame.data[0], frame.data[1:]
        heard = time.monotonic()  # not before the caller asks for more: what it does with the data takes its own time


def exit_code(status: bytes) -> int:
    """The exit code of a command, from the last message: a Status, with the code among its causes if it failed.

    Raises:
        TargetError: it was not run, or the connection broke before it ended.
    """
    if not status:
        raise TargetError("the connection broke before the command ended", fix="try again")
    try:
        answer = json.loads(status)
        ended, causes = answer["status"], (answer.get("details") or {}).get("causes") or []
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TargetError("the exec request ended with a status of unknown form", fix="try again") from error
    if ended == "Success":
        return 0
    codes = [cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"]
    if not codes:
        raise TargetError(f"the command could not be run: {answer.get('message', 'no reason given')}")
    return int(codes[0]) if str(codes[0]).isdecimal() else 1
