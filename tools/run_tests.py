"""``make test``: linters and tests, and the cluster that some need. What mostly waits runs beside what computes.

    python -m tools.run_tests PART...

lint     style, types, layers and the CI workflow
fast     tests that need no cluster and start no training processes, in parallel
slow     those that start some
cluster  those on the cluster, in parallel; then those that need it for themselves, beside the slow ones
long     those that take long: what is tested here on one kind of job there, on the other one
chaos    fifty random faults in one job, on the cluster

The cluster is made beside what needs none. No part is left out because another one failed, and a summary comes last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.kind import host

LOGS: Final = Path(".cache")  # what ran aside has printed
PATIENCE: Final = 40 * 60.0  # seconds for what runs aside; far more than making all of the cluster anew takes
PYTEST: Final = (sys.executable, "-m", "pytest", "-rs", "--durations=10", "--durations-min=5")
WORKERS: Final = os.environ.get("WORKERS", "auto")  # for each core one
HERE: Final = ("--dist=loadgroup", "-n", WORKERS)
THERE: Final = ("--dist=loadgroup", "-n", "3")  # tests on the cluster wait more than they compute
# So do slow ones, on few cores.
SLOW: Final = ("--dist=loadgroup", "-n", str(max(3, os.cpu_count() or 1)) if WORKERS == "auto" else WORKERS)
HELM_TESTS: Final = "tests/charts"  # with those on the cluster, whose making builds helm
CHAOS: Final = "tests/cluster/test_chaos.py"

# Part -> its commands by name.
PARTS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "lint": {"lint": ("make", "--no-print-directory", "lint")},
    "fast": {"fast tests": (*PYTEST, f"--ignore={HELM_TESTS}", "-m", "not slow and not long", *HERE)},
    "slow": {"slow tests": (*PYTEST, "-m", "slow and not long", *SLOW)},
    "cluster": {
        "cluster tests": (*PYTEST, HELM_TESTS, "tests/cluster", "-m", "not long and not alone", *THERE),
        "power tests": (*PYTEST, "tests/cluster", "-m", "not long and alone"),
    },
    "long": {
        "long tests": (*PYTEST, "--ignore=tests/cluster", "-m", "long"),
        "long cluster tests": (*PYTEST, "tests/cluster", f"--ignore={CHAOS}", "-m", "long"),
    },
    "chaos": {"chaos tests": (*PYTEST, "-rP", CHAOS, "-m", "long")},  # and shows what was struck
}
ON_CLUSTER: Final = frozenset({"cluster", "long", "chaos"})
CLUSTER_UP: Final = (sys.executable, "-u", "-m", "tests.cluster.kind", "up", "image")
ASIDE: Final = "power tests"  # a machine's loss is noticed after most of a minute, and nobody else may use the cluster


class Result(NamedTuple):
    """What became of a command."""

    name: str
    outcome: str
    seconds: float = 0.0
    note: str = ""


def main(parts: Sequence[str]) -> int:
    """Run the parts, and show what became of each; the exit code is 1 if one failed."""
    here = [name for part in parts if part not in ON_CLUSTER for name in PARTS[part]]
    there = [name for part in parts if part in ON_CLUSTER for name in PARTS[part]]
    obstacle = host.obstacle() if there else ""
    if there and not obstacle:
        return _summary(_with_cluster(here, there))
    outcome = "FAILED" if os.environ.get("CI") else "SKIPPED"
    return _summary([*map(_run, here), *(Result(name, outcome, note=obstacle) for name in there)])


def _with_cluster(here: Sequence[str], there: Sequence[str]) -> list[Result]:
    late = [name for name in here if name in PARTS["slow"] and ASIDE in there]
    with _aside("cluster up", CLUSTER_UP) as cluster:
        results = [_run(name) for name in here if name not in late]
        results.append(cluster.follow())
    if results[-1].outcome == "FAILED":
        return [*results, *map(_run, late), *(Result(name, "FAILED", note="no cluster") for name in there)]
    results += [_run(name) for name in there if name != ASIDE]
    if ASIDE in there:
        with _aside(ASIDE, _command(ASIDE)) as power:
            results += map(_run, late)
            results.append(power.follow())
    return results


def _command(name: str) -> Sequence[str]:
    return next(commands[name] for commands in PARTS.values() if name in commands)


def _run(name: str) -> Result:
    print(f"== {name}", flush=True)
    began = time.monotonic()
    failed = subprocess.run(_command(name), check=False, env=_environ(name)).returncode
    return Result(name, "FAILED" if failed else "passed", time.monotonic() - began)


def _environ(name: str) -> dict[str, str]:
    on_cluster = any(name in PARTS[part] for part in ON_CLUSTER)
    return {**os.environ, "KITCTL_CLUSTER_TESTS": "1"} if on_cluster else {**os.environ}


@dataclass(frozen=True, kw_only=True)
class Aside:
    """A command that runs beside others and prints into a log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float

    def follow(self) -> Result:
        """Show what it has printed, and what it prints until its end."""
        print(f"== {self.name}", flush=True)
        outcome = "passed" if self._shown_to_its_end() == 0 else "FAILED"
        return Result(self.name, outcome, time.monotonic() - self.began, note="beside others")

    def _shown_to_its_end(self) -> int:
        with self.log.open(encoding="utf-8", errors="replace") as log:
            ended = False
            while not ended:
                ended = self.process.poll() is not None  # asked before the log is read: so nothing of it is missed
                print(log.read(), end="", flush=True)
                if time.monotonic() > self.began + PATIENCE:
                    print(f"\nno end after {PATIENCE / 60:g} minutes")
                    return 1
                time.sleep(0 if ended else 0.2)
        return self.process.wait()


@contextmanager
def _aside(name: str, command: Sequence[str]) -> Iterator[Aside]:
    """Run a command in a process group of its own: whatever it was just running ends with this context."""
    LOGS.mkdir(exist_ok=True)
    path = LOGS / f"{name.replace(' ', '-')}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environ(name), process_group=0
        )
    try:
        yield Aside(name=name, process=process, log=path, began=time.monotonic())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _summary(results: list[Result]) -> int:
    print("== summary")
    for result in results:
        print(f"{result.outcome:<8}{result.name:<20}{result.seconds:6.0f} s  {result.note}".rstrip())
    if ("cluster up", "passed") in {result[:2] for result in results}:
        print("the cluster stays up, for the next run; make cluster-down deletes it")
    return int(any(result.outcome == "FAILED" for result in results))


if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - PARTS.keys():
        sys.exit(__doc__)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
