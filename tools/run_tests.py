"""``make test``: the tests, and the cluster that some of them need, which is made while the others run.

    python -m tools.run_tests PART...

local    those without a cluster, in parallel
cluster  those on the cluster, in parallel; after them those that need it for themselves
long     those that take long: what is tested here on one kind of job there, on the other one
chaos    fifty random faults in one job of each kind, on the cluster

No part is left out because another one failed, and a summary comes last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.kind import host

HELM_TESTS: Final = "tests/charts"  # after the bring-up, which builds helm
LOCAL: Final = ("-m", "not long", "--dist=loadgroup", "-n", os.environ.get("WORKERS", "auto"))
CHAOS: Final = "tests/cluster/test_chaos.py"
# Part -> its runs of pytest. Three at once: tests on the cluster wait more than they compute.
ON_CLUSTER: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "cluster": {
        "cluster tests": (HELM_TESTS, "tests/cluster", "-m", "not long and not alone", "--dist=loadgroup", "-n", "3"),
        "power tests": ("tests/cluster", "-m", "not long and alone"),
    },
    "long": {
        "long tests": ("--ignore=tests/cluster", "-m", "long"),
        "long cluster tests": ("tests/cluster", f"--ignore={CHAOS}", "-m", "long"),
    },
    "chaos": {"chaos tests": (CHAOS, "-m", "long")},
}
REPORT: Final = ("-rs", "--durations=10", "--durations-min=5")  # what was skipped and why, and what took long
LOG: Final = Path(".cache/cluster-up.log")
PATIENCE: Final = 40 * 60.0  # seconds; far more than making all of it anew takes


class Result(NamedTuple):
    """What became of a part."""

    part: str
    outcome: str
    seconds: float = 0.0
    note: str = ""


def main(parts: list[str]) -> int:
    """Run the parts, and show what became of each; the exit code is 1 if one failed."""
    on_cluster = [part for part in parts if part in ON_CLUSTER]
    obstacle = host.obstacle() if on_cluster else ""
    if obstacle or not on_cluster:
        outcome = "FAILED" if os.environ.get("CI") else "SKIPPED"
        results = [*_local(parts), *(Result(part, outcome, note=obstacle) for part in on_cluster)]
    else:
        results = _with_cluster(parts, on_cluster)
    return _summary(results)


def _local(parts: list[str], *options: str) -> list[Result]:
    return [_pytest("local tests", *LOCAL, *options)] if "local" in parts else []


def _with_cluster(parts: list[str], on_cluster: list[str]) -> list[Result]:
    with _bring_up() as cluster:
        results = _local(parts, f"--ignore={HELM_TESTS}")
        print("== cluster up", flush=True)
        began = time.monotonic()
        failed = _follow(cluster)
    results.append(Result("cluster up", "FAILED" if failed else "passed", time.monotonic() - began))
    runs = {name: options for part in on_cluster for name, options in ON_CLUSTER[part].items()}
    if failed:
        return [*results, *(Result(name, "FAILED", note="no cluster") for name in runs)]
    return [*results, *(_pytest(name, *options, KITCTL_CLUSTER_TESTS="1") for name, options in runs.items())]


@contextmanager
def _bring_up() -> Iterator[subprocess.Popen[bytes]]:
    """The cluster's making, in a process group of its own: whatever it was just running ends with it."""
    LOG.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-u", "-m", "tests.cluster.kind", "up", "image"]
    with LOG.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _follow(process: subprocess.Popen[bytes]) -> int:
    """Show what it has printed, and what it prints until its end; its exit code."""
    end = time.monotonic() + PATIENCE
    with LOG.open(encoding="utf-8", errors="replace") as log:
        ended = False
        while not ended:
            ended = process.poll() is not None  # asked before the log is read: so nothing of it is missed
            print(log.read(), end="", flush=True)
            if time.monotonic() > end:
                print(f"\nnot up after {PATIENCE / 60:g} minutes")
                return 1
            time.sleep(0 if ended else 0.2)
    return process.wait()


def _pytest(part: str, *options: str, **environ: str) -> Result:
    return _timed(part, ("-m", "pytest", *REPORT, *options), **environ)


def _timed(part: str, options: Sequence[str], **environ: str) -> Result:
    print(f"== {part}", flush=True)
    began = time.monotonic()
    failed = subprocess.run([sys.executable, *options], check=False, env={**os.environ, **environ}).returncode
    return Result(part, "FAILED" if failed else "passed", time.monotonic() - began)


def _summary(results: list[Result]) -> int:
    print("== summary")
    for result in results:
        print(f"{result.outcome:<8}{result.part:<16}{result.seconds:6.0f} s  {result.note}".rstrip())
    if ("cluster up", "passed") in {result[:2] for result in results}:
        print("the cluster stays up, for the next run; make cluster-down deletes it")
    return int(any(result.outcome == "FAILED" for result in results))


if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - {"local", *ON_CLUSTER}:
        sys.exit(__doc__)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
