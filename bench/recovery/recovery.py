"""Time from a fault to the next optimizer step, on three nodes in network namespaces: kitctl and two torchruns.

python -m bench.recovery.recovery --minutes 4

Trials accumulate over runs, in rounds: each round injects every fault once into a job of every rival, and a run
continues where the last one stopped, until each rival has its TRIALS. Needs root.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.measure import earlier
from bench.recovery.faults import FAULTS, LIMIT, NODES, Fault, Trial, measure
from bench.recovery.jobs import RIVALS, Job
from bench.recovery.network import Network, NetworkUnavailableError
from bench.recovery.table import TABLES, chosen, publish

STEADY = 20  # steps of a whole group before a fault
STAND_BY_SECONDS = 8.0  # until a node that was started again stands by
START_LIMIT = 240.0  # seconds until the first group has formed
TRIALS: Mapping[str, int] = {
    "kitctl": 10,
    "kitctl, own loop": 10,
    "kitctl, plain script": 10,
    "tuned torchrun": 10,
    "stock torchrun": 3,
}


def main(table: str = "recovery") -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.recovery.recovery", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, help="stop after the trial that exceeds them; the next run continues there"
    )
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS), help="what to measure")
    args = parser.parse_args()
    faults = TABLES[table][1]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the namespaces are removed on exit
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    trials = [Trial(**one) for one in earlier(table)]
    try:
        while (batch := next_batch(trials, args.rivals, faults)) and time.monotonic() < deadline:
            for trial in run_batch(*batch):
                trials.append(trial)
                publish(table, trials)
                print(
                    f"  {trial.rival}, {trial.fault}: {outcome(trial)}; {forecast(trials, args.rivals, faults)}",
                    flush=True,
                )
                if time.monotonic() > deadline:
                    break
    except NetworkUnavailableError as error:
        sys.exit(f"bench.recovery.recovery: {error}")


def next_batch(
    trials: Sequence[Trial], rivals: Sequence[str], faults: Sequence[Fault] = FAULTS
) -> tuple[str, list[Fault]] | None:
    """The next job: a rival, and the faults of one shape that have the fewest trials."""
    left = missing(trials, rivals, faults)
    if not left:
        return None
    counts = {(rival, fault): len(chosen(trials, fault, rival)) for rival, fault in left}
    rival, first = min(counts, key=lambda one: counts[one])  # the first of several
    fewest = counts[rival, first]
    return rival, [f for r, f in counts if (r, f.shape) == (rival, first.shape) and counts[r, f] == fewest]


def missing(
    trials: Sequence[Trial], rivals: Sequence[str], faults: Sequence[Fault] = FAULTS
) -> list[tuple[str, Fault]]:
    """Rivals and faults that need more trials."""
    each = ((rival, fault) for rival in rivals for fault in faults)
    return [(rival, fault) for rival, fault in each if len(chosen(trials, fault, rival)) < TRIALS[rival]]


def run_batch(rival: str, faults: Sequence[Fault]) -> Iterator[Trial]:
    """Inject faults into one job, until it does not recover."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Network(NODES + 1) as network,
        Job(RIVALS[rival], Path(scratch), network.machines, nodes=faults[0].shape) as job,
    ):
        start = time.monotonic()
        for node in range(faults[0].before + faults[0].spares):
            job.start(node)
        running, limit = faults[0].before, START_LIMIT
        for fault in faults:
            if running != fault.before or not job.await_group(fault.before, steps=STEADY, limit=limit):
                assert limit != START_LIMIT, f"{rival} did not start: {job.log(0)}"
                return
            if fault.spares:
                time.sleep(STAND_BY_SECONDS)
            trial = measure(job, rival, fault, start=start)
            yield trial
            if trial.seconds is None:
                return
            start, running, limit = time.monotonic(), fault.after, LIMIT


def outcome(trial: Trial) -> str:
    """A trial's result as text."""
    return "dead" if trial.seconds is None else f"{trial.seconds:.2f} s"


def forecast(trials: Sequence[Trial], rivals: Sequence[str], faults: Sequence[Fault] = FAULTS) -> str:
    """Estimate the remaining time from the trials so far."""
    left, seconds = 0, 0.0
    for rival, fault in missing(trials, rivals, faults):
        count = TRIALS[rival] - len(chosen(trials, fault, rival))
        known = [one.took for one in chosen(trials, fault, rival)] or [one.took for one in trials]
        left += count
        seconds += count * statistics.median(known)
    return f"{left} trials left, about {seconds / 60:.0f} minutes"


if __name__ == "__main__":
    main()
