"""How long it takes to see how a job on the warm test cluster is: kitctl beside kubectl and torchx."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.cluster import KITCTL, SHELL, job, namespace
from bench.measure import ROOT, Result, interval, save
from bench.start import install_torchx

ROUNDS = 15
YARDSTICK = "kubectl get job,pods"


def main() -> None:
    """Measure, and write the table."""
    torchx = install_torchx()
    with namespace() as where:
        training = ("--", "-m", "kittrain.workloads.toy", "100000", "--step-time", "0.5")
        subprocess.run([*KITCTL, "submit", *job("run", where, *training)], check=True, capture_output=True, env=SHELL)
        commands = {
            "kitctl status": [str(ROOT / ".venv" / "bin" / "kitctl"), "status", "run", "-n", where],
            YARDSTICK: ["kubectl", "get", "job,pods", "-n", where, "-l", "app.kubernetes.io/instance=run"],
            "torchx status": [torchx, "status", f"kubernetes://torchx/{where}:run"],
            "import kubernetes": [sys.executable, "-c", "import kubernetes"],
        }
        rounds = [{name: _seconds(command) for name, command in commands.items()} for _ in range(ROUNDS + 1)][1:]
        subprocess.run([*KITCTL, "delete", "run", "-n", where, "--snapshots", "-y"], check=True, env=SHELL)
    save(
        "status",
        Result(
            note=f"A job of three nodes on the test cluster that trains meanwhile; whole processes, {ROUNDS} rounds of "
            "all commands in turn, after one to warm up. torchx asks for a Volcano job, which the cluster does not "
            "have: it imports, asks the API server and is told so. Aim: kitctl status within 500 ms.",
            columns=("command", "median ms", "interval ms", f"of {YARDSTICK}"),
            rows=[_row(name, rounds) for name in commands],
            raw=rounds,
        ),
    )


def _row(name: str, rounds: list[dict[str, float]]) -> tuple[str, ...]:
    wall = interval([1000 * one[name] for one in rounds])
    ratio = interval([one[name] / one[YARDSTICK] for one in rounds])
    return f"`{name}`", f"{wall.median:.0f}", f"{wall.low:.0f} to {wall.high:.0f}", f"{ratio.median:.2f}"


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True, env=SHELL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
