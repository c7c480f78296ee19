"""``make test``: the tests without a cluster, and beside them the making of a cluster and the tests on it.

    python -m tools.run_tests PART...

local    those without a cluster, in parallel
cluster  those on the cluster, in parallel; after them those that need it for themselves
chaos    those on the cluster that take long

No part is left out because another one failed, and a summary comes last. Beside the local tests, everything on the
cluster is written to a log, which is shown when they have ended.
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
LOCAL: Final = ("--dist=loadgroup", "-n", os.environ.get("WORKERS", "auto"))
# Part -> its runs of pytest. Three at once: tests on the cluster wait more than they compute.
ON_CLUSTER: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "cluster": {
        "cluster tests": (HELM_TESTS, "tests/cluster", "-m", "not chaos and not alone", "--dist=loadgroup", "-n", "3"),
        "power tests": ("tests/cluster", "-m", "not chaos and alone"),
    },
    "chaos": {"chaos tests": ("tests/cluster", "-m", "chaos")},
}
UP: Final = ("-u", "-m", "tests.cluster.kind", "up", "image")
REPORT: Final = ("-rs", "--durations=10", "--durations-min=5")  # what was skipped and why, and what took long
LOG: Final = Path(".cache/cluster.log")
PATIENCE: Final = 40 * 60.0  # seconds after the local tests; more than making all of it anew and testing it takes


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
    elif on_cluster == parts:
        results = _on_cluster(parts)
    else:
        results = _at_once(on_cluster)
    return _summary(results)


def _local(parts: list[str], *options: str) -> list[Result]:
    return [_pytest("local tests", *LOCAL, *options)] if "local" in parts else []


def _on_cluster(parts: list[str]) -> list[Result]:
    up = _timed("cluster up", UP)
    runs = {name: options for part in parts for name, options in ON_CLUSTER[part].items()}
    if up.outcome != "passed":
        return [up, *(Result(name, "FAILED", note="no cluster") for name in runs)]
    return [up, *(_pytest(name, *options, KITCTL_CLUSTER_TESTS="1") for name, options in runs.items())]


def _at_once(on_cluster: list[str]) -> list[Result]:
    """The local tests, and another one of this program for those on the cluster."""
    began = time.monotonic()
    with _started(on_cluster) as cluster:
        results = _local(["local"], f"--ignore={HELM_TESTS}")
        print("== on the cluster, meanwhile", flush=True)
        failed = _follow(cluster)
    return [*results, Result("on the cluster", "FAILED" if failed else "passed", time.monotonic() - began)]


@contextmanager
def _started(parts: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """What happens on the cluster, in a process group of its own: whatever it was just running ends with it."""
    LOG.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-u", "-m", "tools.run_tests", *parts]
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
                print(f"\nnot at its end after {PATIENCE / 60:g} minutes more")
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
