"""Trains the digits on one, two and three local nodes: accuracy and duration."""

from __future__ import annotations

import re
import statistics
import subprocess
from dataclasses import dataclass

from bench.measure import Result, save
from tools.localjob import LocalJob, kitctl

SIZES = (1, 2, 3)
ROUNDS = 3
ACCURACY = re.compile(r"accuracy (\d+\.\d+) %")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished job: accuracy in percent of the test images, seconds from submit to end, and seconds of training."""

    nodes: int
    accuracy: float
    seconds: float
    training_seconds: float


def main() -> None:
    """Measure, and write the table."""
    runs = [train(nodes) for _ in range(ROUNDS) for nodes in SIZES]
    save(
        "nodes",
        Result(
            note=f"`kitctl submit --target local --nodes N`, the default workload, {ROUNDS} times each in turn; "
            "medians. All nodes share the same few cores, so more nodes are not faster here. Goal: the same accuracy, "
            "within one point. Start-up is mostly the import of torch, once per job.",
            columns=("nodes", "accuracy %", "range", "seconds from submit to end", "seconds of training"),
            rows=[row([run for run in runs if run.nodes == nodes]) for nodes in SIZES],
            raw=[vars(run) for run in runs],
        ),
    )


def train(nodes: int) -> Run:
    """Run the default workload to its end, and delete the job."""
    job = LocalJob.submit("--nodes", str(nodes))
    job.wait_for(lambda job: job.report.formed > 0)
    formed = job.report.formed
    kitctl("wait", job.name, "--target", "local")
    end = job.folder.result
    assert end is not None
    assert end.phase == "Succeeded", f"{job.name} did not succeed: kitctl status {job.name}"
    logs = kitctl("logs", job.name, "--target", "local", "--rank", "0", stdout=subprocess.PIPE).stdout
    accuracy = float(ACCURACY.findall(logs)[-1])
    seconds = end.time - job.folder.job.created
    kitctl("delete", job.name, "--target", "local", "--snapshots", "-y")
    return Run(nodes=nodes, accuracy=accuracy, seconds=seconds, training_seconds=end.time - formed)


def row(runs: list[Run]) -> tuple[str, ...]:
    """One row of the table."""
    accuracies = [run.accuracy for run in runs]
    return (
        str(runs[0].nodes),
        f"{statistics.median(accuracies):.2f}",
        f"{min(accuracies):.2f} to {max(accuracies):.2f}",
        f"{statistics.median(run.seconds for run in runs):.1f}",
        f"{statistics.median(run.training_seconds for run in runs):.1f}",
    )


if __name__ == "__main__":
    main()
