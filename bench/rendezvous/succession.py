"""Rendezvous of many agents without ranks on this machine that lose node 0's hub: they go on at another node's.

python -m bench.rendezvous.succession --sizes 8 512
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

from bench.measure import Result, save
from bench.rendezvous.agents import ADDRESS, LIMIT, SERVERS
from bench.rendezvous.scale import PROCESSES, agents, latest
from kittrain.system.port import connect, listen

SIZES = (8, 64, 512)
TRIALS = 10
SETTLED = 1.0  # seconds of a round before its hub is killed
NOTE = f"""\
Agents without ranks, as threads of {PROCESSES} processes on this machine, which are in a round when node 0's hub is
killed; {TRIALS} trials. All find the hub that takes its place, and form the next round there. Seconds from the kill
until the last agent has noticed it, and until it has its next round. Goal: 1.5 for 512 agents. torch's rendezvous ends
with its store."""


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.rendezvous.succession", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="numbers of agents")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left
    trials = {int(size): [trial(size) for _ in range(TRIALS)] for size in args.sizes}
    columns = ("agents", "trials", "noticed s", "next round s", "range")
    save("succession", Result(note=NOTE, columns=columns, rows=list(rows(trials)), raw=list(trials.items())))


def trial(size: int) -> tuple[float, float]:
    """Kill the hub of a round; returns the seconds until the last agent has noticed, and has its round.

    Raises:
        TimeoutError: not all agents have done so in time.
    """
    with listen(ADDRESS, 0) as probe:
        port = int(probe.getsockname()[1])
    with SERVERS["kitctl"](size, port) as hub, agents("kitctl", size, port) as group:
        connect(ADDRESS, port, deadline=time.monotonic() + LIMIT).close()
        group.run("form")
        time.sleep(SETTLED)
        group.send("outlive")
        time.sleep(SETTLED)
        killed = time.monotonic()
        os.kill(hub, signal.SIGKILL)
        outcomes = [one for one in group.receive() if one]
    moments = [latest(outcomes, action) for action in range(2)]
    if None in moments:
        raise TimeoutError(f"not all of {size} agents have a round again")
    seconds = tuple(moment - killed for moment in moments if moment is not None)
    print(f"  {size} agents: {seconds}", flush=True)
    return seconds[0], seconds[1]


def rows(trials: Mapping[int, Sequence[tuple[float, float]]]) -> Iterator[tuple[str, ...]]:
    """The table's rows."""
    for size, done in trials.items():
        medians = (f"{statistics.median(values):.2f}" for values in zip(*done, strict=True))
        whole = [one[-1] for one in done]
        yield (str(size), str(len(done)), *medians, f"{min(whole):.2f} to {max(whole):.2f}")


if __name__ == "__main__":
    main()
