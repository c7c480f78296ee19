"""``make test``: linters and tests, and the cluster that some of them need.

    python -m tools.run_tests PART...

lint         style, types, layers and the GitHub workflows
fast         tests that need no cluster and start no training processes, in parallel
slow         tests that start some
cluster      tests on the cluster, in parallel
wide         slow tests that show what others show, in other combinations, or as a whole story
wide-cluster the same on the cluster; then those that need it exclusively, while the slow ones of before run
controllers  those that need controllers which take minutes to build: of JobSet, Kubeflow Trainer and Kueue
long         long tests: those that repeat others on the other kind of job, and such
chaos        fifty random faults in one job, on the cluster

The linters and the fast tests run side by side, while the cluster is created. A failed part does not stop the others,
and a summary comes last. Changes to the machine, such as Debian packages, are announced first; ``KIT_NO_SYSTEM=1``
declines them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.kind import host
from tools import system_changes

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = Path(".cache")  # logs of background commands
TIMEOUT: Final = 40 * 60.0  # seconds for a background command; creating the whole cluster takes far less
PYTEST: Final = (sys.executable, "-m", "pytest", "-rs", "--durations=10", "--durations-min=5")
# Which test took how long: `make test-changed` chooses by it.
FAST_RECORD, SLOW_RECORD = (f"--junitxml={LOGS}/{part}-tests.xml" for part in ("fast", "slow"))
WORKERS: Final = os.environ.get("WORKERS", "auto")  # test processes: auto means one a core, but enough for two cores
SPREAD: Final = ("--dist=loadgroup", "-n")
# Fast tests wait for a third of their time, slow ones for two thirds, those on the cluster for most of it.
FAST, SLOW = ((*SPREAD, str(max(least, os.cpu_count() or 1)) if WORKERS == "auto" else WORKERS) for least in (4, 6))
CLUSTER: Final = (*SPREAD, "4")
# Run after the cluster tests, since creating the cluster builds helm, and short tests at the end keep all workers busy.
HELM_TESTS: Final = "tests/charts"
CHAOS: Final = "tests/cluster/faults/test_chaos.py::test_fifty_random_faults_do_not_change_the_result"

CORE: Final = "not long and not wide"
WIDE: Final = "wide and not long"
BUILT: Final = "not controllers"  # of the tests for which the cluster of `make test` is enough


def files(mark: str) -> list[str]:
    """The files with tests of that mark, so that workers import no others; first those whose tests take longest.

    Without those of the cluster.
    """
    local = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("tests/**/test_*.py"))]
    local = [one for one in local if not one.startswith("tests/cluster/")]
    found = [one for one in local if f"mark.{mark}" in (ROOT / one).read_text(encoding="utf-8")]
    return sorted(found, key=lambda one: not one.startswith(("tests/tutorial/", "tests/local/")))


# The files of these parts' tests are in memory, where there is room: thousands of tests make folders, each of which
# takes up to 2 ms of processor time on ext4, and 0.02 ms there. Those of the wide parts are on the disk.
IN_MEMORY: Final = ("fast", "slow", "cluster")
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - in a folder that only this process's user can read
ROOM: Final = 4 << 30  # bytes; the tests use a tenth of it
FILES: Final = ContextVar("files", default="")

# Part -> its commands by name.
PARTS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "lint": {"lint": ("make", "--no-print-directory", "lint")},
    "fast": {"fast tests": (*PYTEST, f"--ignore={HELM_TESTS}", "-m", f"not slow and {CORE}", FAST_RECORD, *FAST)},
    "slow": {"slow tests": (*PYTEST, *files("slow"), "-m", f"slow and {CORE} and not frameworks", SLOW_RECORD, *SLOW)},
    "cluster": {
        "cluster tests": (*PYTEST, "tests/cluster", HELM_TESTS, "-m", f"{CORE} and not alone and {BUILT}", *CLUSTER)
    },
    "wide": {"wide tests": (*PYTEST, *files("wide"), "-m", f"{WIDE} and not frameworks", *SLOW)},
    "wide-cluster": {
        "wide cluster tests": (*PYTEST, "tests/cluster", "-m", f"{WIDE} and not alone and {BUILT}", *CLUSTER),
        "power tests": (*PYTEST, "tests/cluster", "-m", f"not long and alone and {BUILT}"),
    },
    # Those that need the cluster exclusively are all long ones.
    "controllers": {"controllers' tests": (*PYTEST, "tests/cluster", "-m", "not long and controllers", *CLUSTER)},
    "long": {
        "long cluster tests": (*PYTEST, "tests/cluster", f"--deselect={CHAOS}", "-m", "long and not alone", *CLUSTER),
        "long power tests": (*PYTEST, "tests/cluster", "-m", "long and alone"),
        "long tests": (*PYTEST, "--ignore=tests/cluster", "-m", "long and not frameworks", *SLOW),
    },
    "chaos": {"chaos tests": (*PYTEST, "-rP", CHAOS)},  # -rP: shows the faults that were injected
}
NEED_CONTROLLERS: Final = frozenset({"controllers", "long"})
NEED_CLUSTER: Final = NEED_CONTROLLERS | {"cluster", "wide-cluster", "chaos"}
CLUSTER_UP: Final = (sys.executable, "-u", "-m", "tests.cluster.kind", "up", "image")
# In the background: Kubernetes takes most of a minute to notice a lost node, and no other test may use the cluster.
# Afterwards the cluster is paused until the slow tests have ended, since without pods it still takes 0.3 cores.
BACKGROUND: Final = "power tests"
PAUSE: Final = (sys.executable, "-u", "-m", "tests.cluster.kind", "pause")
RESUME: Final = (sys.executable, "-u", "-m", "tests.cluster.kind", "resume")


class Result(NamedTuple):
    """The outcome of a command."""

    name: str
    outcome: str
    seconds: float = 0.0
    note: str = ""


def main(parts: Sequence[str]) -> int:
    """Run the parts and print a summary; the exit code is 1 if one failed."""
    with _files_in_memory():
        return _run_parts(parts)


@contextmanager
def _files_in_memory() -> Iterator[None]:
    """``FILES`` is a folder in memory that goes with this context; empty where there is no room for it."""
    if "TMPDIR" in os.environ or _room() < ROOM:
        yield
        return
    for left in MEMORY.glob("kit-[0-9]*-*"):  # by a run that was killed; others are of jobs, such as kit-snapshots-...
        if not Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix=f"kit-{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        token = FILES.set(folder)
        try:
            yield
        finally:
            FILES.reset(token)


def _room() -> int:
    """Bytes that may be kept in memory: a third of what is free, as far as the file system in memory lets us."""
    try:
        found = os.statvfs(MEMORY)
        free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 0
    return min(found.f_bavail * found.f_frsize, int(free.split()[1]) * 1024 // 3)


def _run_parts(parts: Sequence[str]) -> int:
    local = [name for part in parts if part not in NEED_CLUSTER for name in PARTS[part]]
    on_cluster = [name for part in parts if part in NEED_CLUSTER for name in PARTS[part]]
    obstacle = _cluster_obstacle() if on_cluster else ""
    if on_cluster and not obstacle:
        return _summary(_with_cluster(local, on_cluster))
    outcome = "FAILED" if os.environ.get("CI") else "SKIPPED"
    return _summary([*_run_all(local), *(Result(name, outcome, note=obstacle) for name in on_cluster)])


def _cluster_obstacle() -> str:
    """Why no cluster can be created, including the user's refusal; empty if it can."""
    if obstacle := host.obstacle():
        return obstacle
    return "" if system_changes.allowed(*host.planned_changes()) else "changes to this machine were declined"


def _with_cluster(local: Sequence[str], on_cluster: Sequence[str]) -> list[Result]:
    late = [name for name in local if name in PARTS["wide"] and BACKGROUND in on_cluster]
    controllers = any(name in PARTS[part] for part in NEED_CONTROLLERS for name in on_cluster)
    with _background("cluster up", (*CLUSTER_UP, *(["controllers"] if controllers else []))) as cluster:
        results = _run_all([name for name in local if name not in late])
        results.append(cluster.follow())
    if results[-1].outcome == "FAILED":
        return [*results, *map(_run, late), *(Result(name, "FAILED", note="no cluster") for name in on_cluster)]
    results += [_run(name) for name in on_cluster if name != BACKGROUND]
    if BACKGROUND in on_cluster:
        try:
            with _background(BACKGROUND, _then(_command(BACKGROUND), PAUSE)) as power:
                results += map(_run, late)
                results.append(power.follow())
        finally:
            subprocess.run(RESUME, check=False)
    return results


def _run_all(names: Sequence[str]) -> list[Result]:
    """Run commands in turn, and the linters beside them: these use one core, and tests leave some of two."""
    others = [name for name in names if name != "lint"]
    if len(others) in {0, len(names)}:
        return [*map(_run, names)]
    with _background("lint", _command("lint")) as lint:
        results = [*map(_run, others)]
        return [lint.follow(), *results]


def _command(name: str) -> Sequence[str]:
    return next(commands[name] for commands in PARTS.values() if name in commands)


def _then(command: Sequence[str], last: Sequence[str]) -> Sequence[str]:
    """Both commands in turn, with the exit code of the first."""
    return ("sh", "-c", f'"$@"; code=$?; {shlex.join(last)}; exit $code', "sh", *command)


def _run(name: str) -> Result:
    print(f"== {name}", flush=True)
    began = time.monotonic()
    failed = subprocess.run(_command(name), check=False, env=_environ(name)).returncode
    return Result(name, "FAILED" if failed else "passed", time.monotonic() - began)


def _environ(name: str) -> dict[str, str]:
    on_cluster = {"KIT_CLUSTER_TESTS": "1"} if any(name in PARTS[part] for part in NEED_CLUSTER) else {}
    in_memory = {"TMPDIR": FILES.get()} if FILES.get() and any(name in PARTS[part] for part in IN_MEMORY) else {}
    return {**os.environ, **on_cluster, **in_memory}


@dataclass(frozen=True, kw_only=True)
class Background:
    """A command that runs in the background and writes a log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float  # by the clock, as the log's time

    def follow(self) -> Result:
        """Print its log until it ends, and return its outcome."""
        print(f"== {self.name}", flush=True)
        outcome = "passed" if self._print_until_end() == 0 else "FAILED"
        seconds = self.log.stat().st_mtime - self.began  # it may have ended long ago
        return Result(self.name, outcome, seconds, note="in the background")

    def _print_until_end(self) -> int:
        with self.log.open(encoding="utf-8", errors="replace") as log:
            ended = False
            while not ended:
                ended = self.process.poll() is not None  # polled before the read, so that no output is missed
                print(log.read(), end="", flush=True)
                if time.time() > self.began + TIMEOUT:
                    print(f"\nno end after {TIMEOUT / 60:g} minutes")
                    return 1
                time.sleep(0 if ended else 0.2)
        return self.process.wait()


@contextmanager
def _background(name: str, command: Sequence[str]) -> Iterator[Background]:
    """Run a command in its own process group, which ends with this context."""
    LOGS.mkdir(exist_ok=True)
    path = LOGS / f"{name.replace(' ', '-')}.log"
    began = time.time()
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environ(name), process_group=0
        )
    try:
        yield Background(name=name, process=process, log=path, began=began)
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
