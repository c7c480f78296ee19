"""``make test``: the tests, and the cluster that some of them need, which is made while the others run.

    python -m tools.run_tests PART...

local    those without a cluster, in parallel
cluster  those on the cluster, one after the other: each may use all of its nodes
chaos    those on the cluster that take long

No part is left out because another one failed, and a summary comes last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.kind import host

LOCAL: Final = ("--dist=loadgroup", "-n", os.environ.get("WORKERS", "auto"))
HELM_TESTS: Final = "tests/charts"  # after the bring-up, which builds helm
ON_CLUSTER: Final = {
    "cluster": (HELM_TESTS, "tests/cluster", "-m", "not chaos"),
    "chaos": ("tests/cluster", "-m", "chaos"),
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
    if obstacle:
        results = [_pytest("local", *LOCAL)] if "local" in parts else []
        outcome = "FAILED" if os.environ.get("CI") else "SKIPPED"
        results += [Result(part, outcome, note=obstacle) for part in on_cluster]
    else:
        results = _with_cluster(parts, on_cluster)
    return _summary(results)


def _with_cluster(parts: list[str], on_cluster: list[str]) -> list[Result]:
    results = []
    with _bring_up() as cluster:
        if "local" in parts:
            results.append(_pytest("local", *LOCAL, f"--ignore={HELM_TESTS}"))
        up = _timed("cluster up", lambda: _follow(cluster))
    results.append(up)
    if up.outcome == "passed":
        return results + [_pytest(part, *ON_CLUSTER[part]) for part in on_cluster]
    return results + [Result(part, "FAILED", note="no cluster") for part in on_cluster]


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


def _pytest(part: str, *arguments: str) -> Result:
    command = [sys.executable, "-m", "pytest", *REPORT, *arguments]
    environ = {**os.environ, **({"KITCTL_CLUSTER_TESTS": "1"} if part in ON_CLUSTER else {})}
    return _timed(f"{part} tests", lambda: subprocess.run(command, check=False, env=environ).returncode)


def _timed(part: str, work: Callable[[], int]) -> Result:
    print(f"== {part}", flush=True)
    began = time.monotonic()
    failed = work()
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
