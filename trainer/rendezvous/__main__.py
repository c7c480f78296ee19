"""Node 0's hub as a process of its own, beside its agent: ``python -m trainer.rendezvous FD ...``.

It imports no torch, so it is back as soon as node 0 is.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket

from trainer.rendezvous.hub import SILENT_PULSES, Hub
from trainer.rendezvous.roster import Roster
from trainer.rendezvous.vigil import Vigil
from trainer.system.lifeline import end_with
from trainer.system.port import allow_connections


def main() -> None:
    """Serve on a socket that listens already, whose file descriptor is the first argument."""
    parser = argparse.ArgumentParser("trainer.rendezvous", description="Where the nodes of a job meet.")
    parser.add_argument("listener", type=int, metavar="FD", help="file descriptor of a listening socket")
    parser.add_argument("parent", type=int, metavar="PID", help="process to end with")
    parser.add_argument("run", help="id of the run")
    parser.add_argument("fewest", type=int, help="nodes of a round")
    parser.add_argument("most", type=int, help="nodes of a round")
    parser.add_argument("last_call", type=float, help="seconds that fewer nodes wait for more")
    parser.add_argument("interval", type=int, help="seconds between signs of life")
    parser.add_argument("attempts", type=int, help="how many of them may be missing")
    parser.add_argument("grace", type=float, help="seconds that ranks may take to stop")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):  # they are the agent's to act on; the other nodes need this process
        signal.signal(number, signal.SIG_IGN)
    end_with(args.parent)
    allow_connections()
    roster = Roster(fewest=args.fewest, most=args.most, last_call=args.last_call)
    silence = SILENT_PULSES * args.interval * args.attempts
    vigil = Vigil(silence=silence, stopping=args.grace)
    hub = Hub(args.run, roster, vigil, interval=args.interval, attempts=args.attempts)
    asyncio.run(hub.serve(socket.socket(fileno=args.listener)))


if __name__ == "__main__":
    main()
