"""Node 0's hub as a process of its own, beside its agent: ``python -m kittrain.rendezvous``, with its orders on stdin.

It imports no torch, so it is back as soon as node 0 is. The run's secret is among its orders, which is why they are no
arguments: anybody on the machine can read those.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from functools import partial

from kittrain.rendezvous.handshake import Key
from kittrain.rendezvous.hang_detector import Vigil
from kittrain.rendezvous.hub import SILENT_PULSES, Hub
from kittrain.rendezvous.hub_config import Orders
from kittrain.rendezvous.membership import Roster
from kittrain.system import typed
from kittrain.system.console import say
from kittrain.system.lifeline import end_with
from kittrain.system.port import allow_connections


def main() -> None:
    """Serve on a socket that listens already."""
    for number in (signal.SIGTERM, signal.SIGINT):  # they are the agent's to act on; the other nodes need this process
        signal.signal(number, signal.SIG_IGN)
    orders: Orders = typed.load(Orders, sys.stdin.buffer.readline())
    end_with(orders.parent)
    allow_connections()
    roster = Roster(fewest=orders.fewest, most=orders.most, last_call=orders.last_call)
    silence = SILENT_PULSES * orders.interval * orders.attempts
    vigil = Vigil(silence=silence, stopping=orders.grace)
    hub = Hub(
        Key(orders.secret, orders.run),
        roster,
        vigil,
        interval=orders.interval,
        attempts=orders.attempts,
        warn=partial(say, 0),
    )
    asyncio.run(hub.serve(socket.socket(fileno=orders.listener)))


if __name__ == "__main__":
    main()
