"""Following the logs of 64 pods on the test cluster that print as fast as they can: kitctl, stern and kubectl."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.cluster.commands import KITCTL, SHELL, job, manifest, temporary_namespace
from bench.measure import Result, interval, save
from tests.cluster.kind import programs
from tests.cluster.kind.settings import SHARED
from tests.cluster.kubectl import get, kubectl, until

ROUNDS: Final = int(os.environ.get("ROUNDS", "5"))
PODS: Final = int(os.environ.get("PODS", "64"))
LINES: Final = 1000  # of each pod, each time; all of a run stay below 10 MiB a pod, where a kubelet rotates its log
LIMIT_SECONDS: Final = 300.0
QUIET_SECONDS: Final = 15.0  # without a line, after which no more are expected
CONNECTED_SECONDS: Final = 5.0
# A kubelet takes an inotify instance for each log that is followed. Linux' default of 128 for a user is too few for 64
# of them besides a cluster's own: the kubelet then ends the request, and stern and kubectl lose the rest in silence.
INSTANCES: Final = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH: Final = 1024
NAME: Final = "talk"
SELECTOR: Final = f"app.kubernetes.io/instance={NAME}"
# Prints LINES numbered lines each time that the next file appears on the volume.
TALK: Final = f"""
import itertools, os, sys, time
node = os.environ["JOB_COMPLETION_INDEX"]
for batch in itertools.count():
    while not os.path.exists("/snapshots/%d" % batch):
        time.sleep(0.1)
    for line in range({LINES}):
        print("[rank %s]: line %d of a log that many people want to read at once" % (node, batch * {LINES} + line))
    sys.stdout.flush()
"""
NUMBER: Final = re.compile(rb"\[rank (\d+)\]: line (\d+) ")


def main() -> None:
    """Measure, and write the table."""
    programs.build("stern")
    rounds: list[dict[str, dict[str, float]]] = []
    with _enough_instances(), temporary_namespace() as namespace, _talking(namespace) as folder:
        turns = deque(_commands(namespace).items())
        batches = itertools.count()
        for _ in range(ROUNDS + 1):
            rounds.append({name: _follow(command, folder, next(batches)) for name, command in turns})
            turns.rotate(1)  # none always reads the most, or comes after the same one
            print(f"  {rounds[-1]}", flush=True)
    save(
        "logs",
        Result(
            note=f"{PODS} pods on the test cluster; a follower reads what they have printed, and then {LINES} lines of "
            f"each that they print at once, {ROUNDS} rounds of all in turn, after one to warm up. Thousands of lines a "
            "second from the command, and from the moment at which they may print, to the last line, which is "
            "the machine's speed as much as the follower's: all share its cores. Processor time and peak memory of the "
            "follower. Wrong: lines that never came, or twice, in all rounds. `fs.inotify.max_user_instances` is "
            f"{ENOUGH}: with Linux' 128 stern and kubectl lack lines. Goal: as fast as stern, with less memory.",
            columns=(
                "follower",
                "what was there, 1000 lines/s",
                "what is printed, 1000 lines/s",
                "CPU us/line",
                "MB",
                "wrong",
            ),
            rows=[_row(name, rounds[1:]) for name in _commands("")],
            raw=rounds,
        ),
    )


@contextmanager
def _enough_instances() -> Iterator[None]:
    """Allow kubelets to follow as many logs as there are."""
    before = INSTANCES.read_text(encoding="ascii")
    if int(before) < ENOUGH:
        INSTANCES.write_text(str(ENOUGH), encoding="ascii")
    try:
        yield
    finally:
        INSTANCES.write_text(before, encoding="ascii")


def _commands(namespace: str) -> dict[str, list[str]]:
    where = ["-n", namespace, "-l", SELECTOR]
    return {
        "`kitctl logs -f`": [*KITCTL, "logs", "-f", NAME, "-n", namespace],
        "`stern`": ["stern", *where, "--tail", "-1", "--max-log-requests", str(PODS)],
        "`kubectl logs -f`": ["kubectl", "logs", "-f", *where, "--prefix", "--tail=-1", f"--max-log-requests={PODS}"],
    }


def _row(name: str, rounds: list[dict[str, dict[str, float]]]) -> tuple[str, ...]:
    found = {what: interval([one[name][what] for one in rounds]) for what in ("read", "followed", "cpu", "memory")}
    speeds = [f"{one.median:.0f} ({one.low:.0f} to {one.high:.0f})" for one in (found["read"], found["followed"])]
    wrong = sum(one[name]["wrong"] for one in rounds)
    return name, *speeds, f"{found['cpu'].median:.1f}", f"{found['memory'].median:.0f}", f"{wrong:.0f}"


@contextmanager
def _talking(namespace: str) -> Iterator[Path]:
    """The pods of a job that wait to print; its folder on this machine."""
    requests = ("--set", "resources.requests.cpu=10m", "--set", "resources.requests.memory=32Mi")
    objects = json.loads(manifest(job(NAME, namespace, *requests, nodes=str(PODS))))
    (made,) = (one for one in objects["items"] if one["kind"] == "Job")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container |= {"command": ["python3", "-c", TALK], "args": []}
    made["spec"]["suspend"] = False
    kubectl("apply", "--server-side", "-f", "-", given=json.dumps(objects))
    until(lambda: get(namespace, "job", NAME)["status"].get("ready") == PODS, seconds=LIMIT_SECONDS)
    (folder,) = SHARED.glob(f"pvc-*_{namespace}_{NAME}-snapshots")
    yield folder
    kubectl("delete", "job", NAME, "-n", namespace, "--cascade=foreground")


class Follower:
    """A command that prints the lines of all pods, and how many of each it has printed."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, env=SHELL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.seen = [0] * PODS
        self.wrong = 0  # lines that came twice, or never
        self._rest = b""

    def read(self, count: int) -> float:
        """Seconds until this many lines of each pod had arrived, or those that arrive at all."""
        assert self.process.stdout is not None
        began = last = time.perf_counter()
        while min(self.seen) < count and time.perf_counter() < last + QUIET_SECONDS:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                *lines, self._rest = (self._rest + os.read(self.process.stdout.fileno(), 1 << 20)).split(b"\n")
                self._take(lines)
                last = time.perf_counter()
            assert self.process.poll() is None, f"{self.process.args!r} has ended"
        self.wrong += sum(count - one for one in self.seen)
        self.seen = [count] * PODS
        return last - began

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            if found := NUMBER.search(line):
                pod, number = int(found[1]), int(found[2])
                self.wrong += abs(number - self.seen[pod])
                self.seen[pod] = max(number + 1, self.seen[pod])


def _follow(command: list[str], folder: Path, batch: int) -> dict[str, float]:
    """Follow the pods' logs until the lines of this batch have arrived, too."""
    follower = Follower(command)
    try:
        reading = follower.read(batch * LINES)
        time.sleep(CONNECTED_SECONDS)  # a follower that had read all that was there may still connect to some pods
        (folder / str(batch)).touch()
        following = follower.read((batch + 1) * LINES)
        used = _used(follower.process.pid)
    finally:
        follower.process.kill()
        follower.process.wait()
    lines = PODS * (batch + 1) * LINES
    speed = {
        "read": PODS * batch * LINES / reading / 1000 if batch else 0.0,
        "followed": PODS * LINES / following / 1000,
    }
    return {**speed, "cpu": used["seconds"] / lines * 1e6, "memory": used["bytes"] / 1e6, "wrong": follower.wrong}


def _used(pid: int) -> dict[str, float]:
    """Processor seconds and the peak of memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "seconds": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        "bytes": int(peak.split()[1]) * 1024,
    }


if __name__ == "__main__":
    main()
