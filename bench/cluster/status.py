"""Duration of a status command on the test cluster: kitctl compared with kubectl and torchx."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.cluster.commands import KITCTL, SHELL, job, temporary_namespace
from bench.measure import ROOT, Result, interval, save
from bench.start import install_torchx

ROUNDS = 15
BASELINE = "kubectl get job,pods"


def main() -> None:
    """Measure, and write the table."""
    torchx = install_torchx()
    with temporary_namespace() as namespace:
        training = ("--", "-m", "kittrain.workloads.toy", "100000", "--step-time", "0.5")
        submit = [*KITCTL, "submit", *job("run", namespace, *training)]
        subprocess.run(submit, check=True, capture_output=True, env=SHELL)
        commands = {
            "kitctl status": [str(ROOT / ".venv" / "bin" / "kitctl"), "status", "run", "-n", namespace],
            BASELINE: ["kubectl", "get", "job,pods", "-n", namespace, "-l", "app.kubernetes.io/instance=run"],
            "torchx status": [torchx, "status", f"kubernetes://torchx/{namespace}:run"],
            "import kubernetes": [sys.executable, "-c", "import kubernetes"],
        }
        rounds = [{title: _seconds(command) for title, command in commands.items()} for _ in range(ROUNDS + 1)][1:]
        subprocess.run([*KITCTL, "delete", "run", "-n", namespace, "--snapshots", "-y"], check=True, env=SHELL)
    save(
        "status",
        Result(
            note=f"A job of three nodes that is training on the test cluster; whole processes, {ROUNDS} rounds of all "
            "commands in turn, after one to warm up. torchx needs Volcano, which the cluster lacks: it is imported, "
            "sends its request and gets an error. Goal: kitctl status within 250 ms.",
            columns=("command", "median ms", "interval ms", f"/ {BASELINE}"),
            rows=[_row(title, rounds) for title in commands],
            raw=rounds,
        ),
    )


def _row(name: str, rounds: list[dict[str, float]]) -> tuple[str, ...]:
    wall = interval([1000 * one[name] for one in rounds])
    ratio = interval([one[name] / one[BASELINE] for one in rounds])
    return f"`{name}`", f"{wall.median:.0f}", f"{wall.low:.0f} to {wall.high:.0f}", f"{ratio.median:.2f}"


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True, env=SHELL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
