"""Forming and re-forming a rendezvous of many agents without ranks, on this machine: ours beside stock c10d.

python -m bench.scale --sizes 8 64
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.measure import Result, earlier, write
from bench.scale_agents import ADDRESS, AGENTS, HOSTS, LIMIT, OPERATIONS, Moments, Seat, crew
from kittrain.system.port import listen, reach

SIZES: Mapping[str, Sequence[int]] = {"kitctl": (8, 64, 256, 512, 4096), "stock c10d": (8, 64, 256, 512)}
TRIALS: Mapping[str, int] = {"kitctl": 10, "stock c10d": 3}
CREWS = 4  # processes for the agents of a trial

NOTE = f"""\
Agents without ranks, as threads of {CREWS} processes on this machine, each with its own connection to the one process
where all meet: our hub, or torch's store. Both as they are by default; a round may have one agent less than there
are. Medians. Form: from the order to connect until the last agent has its round, with the CPU time and the memory
that this cost the meeting place. Operations: each agent sets and gets {OPERATIONS} keys of the round's store, all at
once. Notice: from the death of one agent (its connection ends, its signs of life stay away) until the last of the
others could know: ours are told; stock ones read the shared state each second here, and act on what they read only
when somebody waits to join. Form again: from there until all have their next round; 30 s of stock's are its last
call. Over {LIMIT:.0f}: not within that time; what comes after it was not tried then."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One rendezvous's life; seconds until the last agent was there, None where it was not within the limit.

    Attributes:
        rival: whose.
        size: agents.
        form: from the order to connect to a whole round.
        cpu: of the process where they meet, meanwhile, in seconds.
        memory: that this process has taken for it, in KiB.
        operations: keys set and got in a second, by all agents together.
        notice: from the death of one agent until all others could know.
        reform: from there until they had their next round.
    """

    rival: str
    size: int
    form: float | None
    cpu: float
    memory: float
    operations: float | None = None
    notice: float | None = None
    reform: float | None = None


class Crews:
    """All agents of a trial."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    def do(self, *order: Any) -> list[Moments]:
        """Have all agents do something at once."""
        for connection in self._connections:
            connection.send(order)
        return [moments for connection in self._connections for moments in connection.recv()]


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.scale", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES["kitctl"], help="how many agents")
    parser.add_argument("--minutes", type=float, help="stop after the trial that passes them")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left behind
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # else each of stock's connections warns that it finds no host name
    trials = [Trial(**one) for one in earlier("scale")]
    for count in range(max(TRIALS.values())):
        for size in args.sizes:
            for rival in (rival for rival in AGENTS if size in SIZES[rival] and count < TRIALS[rival]):
                if wanted(chosen(trials, size, rival), count) and time.monotonic() < deadline:
                    trials.append(measure(rival, size))
                    publish(trials)
                    print(f"  {trials[-1]}", flush=True)


def wanted(done: Sequence[Trial], count: int) -> bool:
    """Whether one more trial is; whoever has not finished once is not asked again."""
    return len(done) <= count and all(one.form is not None for one in done)


def measure(rival: str, size: int) -> Trial:
    """One rendezvous's life."""
    with listen(ADDRESS, 0) as probe:
        port = int(probe.getsockname()[1])
    with HOSTS[rival](size, port) as host, crews(rival, size, port) as everyone:
        reach(ADDRESS, port, deadline=time.monotonic() + LIMIT).close()
        began, used, held = time.monotonic(), cpu_seconds(host), memory(host)
        formed = latest(everyone.do("form"), 1)
        cost = {"cpu": cpu_seconds(host) - used, "memory": memory(host) - held}
        if formed is None:
            return Trial(rival=rival, size=size, form=None, **cost)
        asked = time.monotonic()
        answered = latest(everyone.do("operate"), 0)
        fates = everyone.do("survive", size - 1)
        ((died,),) = (fate for fate in fates if len(fate) == 1)
        survivors = [fate for fate in fates if len(fate) > 1]
        noticed, reformed = latest(survivors, 0), latest(survivors, 1)
    return Trial(
        rival=rival,
        size=size,
        form=formed - began,
        operations=2 * OPERATIONS * size / (answered - asked) if answered else None,
        notice=noticed - died if noticed and died else None,
        reform=reformed - noticed if reformed and noticed else None,
        **cost,
    )


@contextmanager
def crews(rival: str, size: int, port: int) -> Iterator[Crews]:
    """Start the agents' processes; they have imported what they need."""
    context = get_context("spawn")
    seats = [Seat(index=index, size=size, port=port) for index in range(size)]
    ends, processes = [], []
    for number in range(CREWS):
        ours, theirs = context.Pipe()
        process = context.Process(target=crew, args=(theirs, rival, seats[number::CREWS]), daemon=True)
        process.start()
        ends.append(ours)
        processes.append(process)
    try:
        everyone = Crews(ends)
        everyone.do("wake")
        yield everyone
    finally:
        for process in processes:
            process.kill()
            process.join()


def latest(fates: Sequence[Moments], place: int) -> float | None:
    """When the last agent was done with something; None if one never was."""
    moments = [fate[place] for fate in fates]
    return None if None in moments else max(moment for moment in moments if moment is not None)


def cpu_seconds(pid: int) -> float:
    """What a process has used, from ``/proc`` (see proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """What a process holds, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def publish(trials: Sequence[Trial]) -> None:
    """Write what there is."""
    write(
        "scale",
        Result(
            note=" ".join(NOTE.split()),
            columns=(
                *("agents", "rival", "times", "form s", "CPU ms an agent", "KiB an agent", "operations a second"),
                *("notice s", "form again s"),
            ),
            rows=[
                row(trials, size, rival) for size in SIZES["kitctl"] for rival in AGENTS if chosen(trials, size, rival)
            ],
            raw=[asdict(one) for one in trials],
        ),
    )


def chosen(trials: Sequence[Trial], size: int, rival: str) -> list[Trial]:
    """The trials of a size and a rival."""
    return [one for one in trials if (one.size, one.rival) == (size, rival)]


def row(trials: Sequence[Trial], size: int, rival: str) -> tuple[str, ...]:
    """One line of the table."""
    here = chosen(trials, size, rival)
    return (
        str(size),
        rival,
        str(len(here)),
        form if (form := shown([one.form for one in here], 2)) != "-" else f"over {LIMIT:.0f}",
        shown([1000 * one.cpu / size for one in here], 2),
        shown([one.memory / size for one in here], 0),
        shown([one.operations for one in here], 0),
        shown([one.notice for one in here], 2),
        shown([one.reform for one in here], 2),
    )


def shown(values: Sequence[float | None], digits: int) -> str:
    """A median, unless half of it never came about."""
    known = sorted(value if value is not None else float("inf") for value in values)
    middle = statistics.median(known)
    return f"{middle:.{digits}f}" if middle < float("inf") else "-"


if __name__ == "__main__":
    main()
