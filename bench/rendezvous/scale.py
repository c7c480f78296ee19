"""Rendezvous of many agents without ranks on this machine, before and after a loss: kitctl and stock c10d.

python -m bench.rendezvous.scale --sizes 8 64
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
from bench.rendezvous.agents import ADDRESS, AGENTS, LIMIT, OPERATIONS, SERVERS, AgentConfig, Times, run_agents
from kittrain.system.port import connect, listen

SIZES: Mapping[str, Sequence[int]] = {"kitctl": (8, 64, 256, 512, 4096), "stock c10d": (8, 64, 256, 512)}
TRIALS: Mapping[str, int] = {"kitctl": 10, "stock c10d": 3}
PROCESSES = 4  # for the agents of a trial

NOTE = f"""\
Agents without ranks, as threads of {PROCESSES} processes on this machine, each with its own connection to the server:
kitctl's hub, or torch's store. Both have default settings; a round may form with one agent less. Medians. Form: from
the command to connect until the last agent has its round; with the CPU time and memory of the server meanwhile.
Operations: each agent sets and gets {OPERATIONS} keys of the round's store, all at once. Notice: from the death of
one agent (its connection is closed, its heartbeats stop) until the last of the others can detect it: kitctl's agents
are notified; stock agents read the shared state every second here, and act on it only if an agent waits to join.
Re-form: from there until all have their next round; 30 s of stock c10d's are its last call. Over {LIMIT:.0f}: not
within that time; later actions were then not tried."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The results for one rendezvous; seconds until the last agent was done, None if it was not within the limit.

    Attributes:
        rival: the system under test.
        size: number of agents.
        form: from the command to connect until the round is formed.
        cpu: CPU seconds of the server meanwhile.
        memory: that the server has allocated meanwhile, in KiB.
        operations: keys set and read per second, by all agents together.
        notice: from the death of one agent until all others can detect it.
        reform: from there until the next round is formed.
    """

    rival: str
    size: int
    form: float | None
    cpu: float
    memory: float
    operations: float | None = None
    notice: float | None = None
    reform: float | None = None


class AgentGroup:
    """All agents of a trial."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    def run(self, *command: Any) -> list[Times]:
        """Run a command on all agents at once; returns their times."""
        self.send(*command)
        return self.receive()

    def send(self, *command: Any) -> None:
        """Let all agents run a command."""
        for connection in self._connections:
            connection.send(command)

    def receive(self) -> list[Times]:
        """Wait for it; returns the agents' times."""
        return [times for connection in self._connections for times in connection.recv()]


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.rendezvous.scale", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES["kitctl"], help="numbers of agents")
    parser.add_argument("--minutes", type=float, help="stop after the trial that exceeds them")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # else each stock connection logs a warning about host names
    trials = [Trial(**one) for one in earlier("scale")]
    for count in range(max(TRIALS.values())):
        for size in args.sizes:
            for rival in (rival for rival in AGENTS if size in SIZES[rival] and count < TRIALS[rival]):
                if needs_trial(chosen(trials, size, rival), count) and time.monotonic() < deadline:
                    trials.append(measure(rival, size))
                    publish(trials)
                    print(f"  {trials[-1]}", flush=True)


def needs_trial(done: Sequence[Trial], count: int) -> bool:
    """Whether another trial is needed; none is after one that did not finish."""
    return len(done) <= count and all(one.form is not None for one in done)


def measure(rival: str, size: int) -> Trial:
    """Run one trial."""
    with listen(ADDRESS, 0) as probe:
        port = int(probe.getsockname()[1])
    with SERVERS[rival](size, port) as server, agents(rival, size, port) as group:
        connect(ADDRESS, port, deadline=time.monotonic() + LIMIT).close()
        start, used, held = time.monotonic(), cpu_seconds(server), memory(server)
        formed = latest(group.run("form"), 1)
        cost = {"cpu": cpu_seconds(server) - used, "memory": memory(server) - held}
        if formed is None:
            return Trial(rival=rival, size=size, form=None, **cost)
        begin = time.monotonic()
        end = latest(group.run("operate"), 0)
        outcomes = group.run("survive", size - 1)
        ((died,),) = (one for one in outcomes if len(one) == 1)
        survivors = [one for one in outcomes if len(one) > 1]
        noticed, reformed = latest(survivors, 0), latest(survivors, 1)
    return Trial(
        rival=rival,
        size=size,
        form=formed - start,
        operations=2 * OPERATIONS * size / (end - begin) if end else None,
        notice=noticed - died if noticed and died else None,
        reform=reformed - noticed if reformed and noticed else None,
        **cost,
    )


@contextmanager
def agents(rival: str, size: int, port: int) -> Iterator[AgentGroup]:
    """Start the agents' processes, and wait until they have imported their modules."""
    context = get_context("spawn")
    configs = [AgentConfig(index=index, size=size, port=port) for index in range(size)]
    ends, processes = [], []
    for number in range(PROCESSES):
        ours, theirs = context.Pipe()
        process = context.Process(target=run_agents, args=(theirs, rival, configs[number::PROCESSES]), daemon=True)
        process.start()
        ends.append(ours)
        processes.append(process)
    try:
        group = AgentGroup(ends)
        group.run("ping")
        yield group
    finally:
        for process in processes:
            process.kill()
            process.join()


def latest(outcomes: Sequence[Times], index: int) -> float | None:
    """When the last agent finished an action; None if one did not."""
    moments = [one[index] for one in outcomes]
    return None if None in moments else max(moment for moment in moments if moment is not None)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, from ``/proc`` (see proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    """Resident memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def publish(trials: Sequence[Trial]) -> None:
    """Write the results so far."""
    write(
        "scale",
        Result(
            note=" ".join(NOTE.split()),
            columns=(
                *("agents", "system", "trials", "form s", "CPU ms per agent", "KiB per agent", "operations per s"),
                *("notice s", "re-form s"),
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
    """One row of the table."""
    here = chosen(trials, size, rival)
    return (
        str(size),
        rival,
        str(len(here)),
        form if (form := median_text([one.form for one in here], 2)) != "-" else f"over {LIMIT:.0f}",
        median_text([1000 * one.cpu / size for one in here], 2),
        median_text([one.memory / size for one in here], 0),
        median_text([one.operations for one in here], 0),
        median_text([one.notice for one in here], 2),
        median_text([one.reform for one in here], 2),
    )


def median_text(values: Sequence[float | None], digits: int) -> str:
    """The median; ``-`` if half of the values are missing."""
    known = sorted(value if value is not None else float("inf") for value in values)
    middle = statistics.median(known)
    return f"{middle:.{digits}f}" if middle < float("inf") else "-"


if __name__ == "__main__":
    main()
