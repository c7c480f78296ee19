"""``python -P -m kittrain.rank.snapshots.peers``: what each agent runs next to it to keep copies.

The first line on stdin is the run's key, in hexadecimal digits. Each further one is a round of the ranks, as JSON; or
``end node`` or ``end job``: nothing more is published here, and others may still need what there is; or ``release``:
they do not, as it is uploaded. The agent ends this.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from kitjob import typed
from kittrain.job.env import rank_env
from kittrain.rank.snapshots.folder.archive import Archive
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.peers.fetching import connect
from kittrain.rank.snapshots.peers.keeping import Keeper
from kittrain.rank.snapshots.peers.messages import Round
from kittrain.rank.snapshots.peers.serving import Server
from kittrain.system.console import log
from kittrain.system.parent_death import die_with_parent
from kittrain.system.priority import yield_to_training

NICE: Final = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Keep copies until the agent ends this."""
    line = argparse.ArgumentParser(prog="python -m kittrain.rank.snapshots.peers", description=__doc__)
    line.add_argument("--parent", type=int, required=True, help="process id that this ends with")
    line.add_argument("--listener", type=int, required=True, help="descriptor of the socket to accept from")
    options = line.parse_args(argv)
    die_with_parent(options.parent)
    yield_to_training(NICE)
    for number in (signal.SIGTERM, signal.SIGINT):  # of a terminal or a group of processes: the agent decides
        signal.signal(number, signal.SIG_IGN)
    env = rank_env()
    if env.snapshot_dir is None:
        return 2
    key = bytes.fromhex(sys.stdin.buffer.readline().decode())
    say = partial(log, env.node_index)
    server = Server(socket.socket(fileno=options.listener), key, env.snapshot_dir, lambda text: say(f"warning: {text}"))
    retention = Retention(env, least=env.job.snapshots.in_memory)
    keeper = Keeper(
        node=env.node_index,
        folder=env.snapshot_dir,
        server=server,
        open=partial(connect, key=key),
        run=env.run_id,
        archive=Archive(env.snapshot_dir, run=env.run_id, retention=retention, log=say),
        whole=bool(env.job.snapshots.mirror),
        stays=env.job.snapshots.in_memory,
        log=say,
    )
    server.start()
    threading.Thread(target=keeper.keep, daemon=True).start()
    for told in sys.stdin.buffer:
        word, *what = told.decode().split(maxsplit=1)
        if word == "end":
            keeper.finish("job" if what == ["job\n"] else "node")
        elif word == "release":
            keeper.release()
        else:
            keeper.begin(typed.load(Round, told))
    return 0  # there is no agent any more


if __name__ == "__main__":
    sys.exit(main())
