"""Time from the command to the job's first optimizer step on the test cluster: kitctl and ``kubectl apply``."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cluster import KITCTL, SHELL, job, manifest, temporary_namespace
from bench.measure import Result, interval, save
from tests.cluster.kind.settings import SHARED, STATE

ROUNDS = 7
LIMIT_SECONDS = 240.0
POLL_SECONDS = 0.02
TRAINING = ("--", "-m", "kittrain.workloads.toy", "1000", "--step-time", "0.2", "--record", "/snapshots/record")
CLEAN = ("delete", "job,service,configmap,pvc,role,rolebinding,serviceaccount,networkpolicy", "--wait=true")


def main() -> None:
    """Measure, and write the table."""
    with temporary_namespace() as namespace:
        rounds = [(_kitctl(namespace, f"k{n}"), _kubectl(namespace, f"a{n}")) for n in range(ROUNDS + 1)][1:]
    ours, theirs = zip(*rounds, strict=True)
    ratio = interval([mine / other for mine, other in rounds])
    save(
        "submit",
        Result(
            note=f"Three nodes on the test cluster, which has the image; {ROUNDS} rounds of both in turn, after one "
            "to warm up. Seconds from the start of the command to the first optimizer step of any rank. kubectl "
            "applies a manifest that `kitctl render` printed before. Goal: within 10 %.",
            columns=("command", "median s", "interval s", "/ kubectl apply"),
            rows=[
                ("`kitctl submit`", *_row(ours), f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"),
                ("`kubectl apply`", *_row(theirs), "1"),
            ],
            raw=rounds,
        ),
    )


def _row(seconds: Sequence[float]) -> tuple[str, str]:
    found = interval(seconds)
    return f"{found.median:.1f}", f"{found.low:.1f} to {found.high:.1f}"


def _kitctl(namespace: str, name: str) -> float:
    return _first_step(namespace, name, [*KITCTL, "submit", *job(name, namespace, *TRAINING)])


def _kubectl(namespace: str, name: str) -> float:
    path = STATE / f"bench-{name}.json"
    path.write_text(manifest(job(name, namespace, *TRAINING)))
    try:
        return _first_step(namespace, name, ["kubectl", "apply", "--server-side", "-f", str(path)])
    finally:
        path.unlink()


def _first_step(namespace: str, name: str, command: list[str]) -> float:
    """Run a command that starts a job; returns the seconds to its first recorded step, and deletes the job."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=SHELL)
    while not _steps(namespace, name):
        assert time.perf_counter() - start < LIMIT_SECONDS, f"{name} took no step"
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - start
    print(f"  {name}: {seconds:.1f} s", flush=True)
    subprocess.run(["kubectl", *CLEAN, "-n", namespace, "--all"], check=True, capture_output=True, env=SHELL)
    return seconds


def _steps(namespace: str, name: str) -> bool:
    records: list[Path] = list(SHARED.glob(f"pvc-*_{namespace}_{name}-snapshots/record/rank-*.jsonl"))
    return any(path.stat().st_size for path in records)


if __name__ == "__main__":
    main()
