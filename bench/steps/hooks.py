"""What the hooks in a plain script's rank cost: steps of a small model with and without them, in processes in turn."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import ROOT, Result, interval, save
from kittrain.system import heartbeat

ROUNDS = 7
STEPS = 3000
SHORT_STEP = 8000.0  # microseconds; the goal is a share of it
PLAIN = """
import statistics, sys, time
from kittrain.agent.hooks import script_hooks
script_hooks.install()
import torch
device, steps = sys.argv[1], int(sys.argv[2])
model = torch.nn.Linear(8, 8, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
inputs, seconds = torch.ones(8, 8, device=device), []
for _ in range(steps):
    begin = time.perf_counter()
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
    seconds.append(time.perf_counter() - begin)
print(1e6 * statistics.median(seconds[steps // 10:]))
"""


def main() -> None:
    """Measure, and write the table."""
    without, with_hooks = measure("cpu")
    added = interval([own - bare for own, bare in zip(with_hooks, without, strict=True)])
    save(
        "hooks",
        Result(
            note=f"A plain loop with a model of one small layer, on one core; {STEPS} steps a process, {ROUNDS} "
            "processes with the hooks that count steps and find hangs, and as many without, in turn; medians, with a "
            f"95 % interval of the difference. Goal: at most 1 % of a step of {SHORT_STEP / 1000:.0f} ms.",
            columns=("without, us per step", "with hooks", "difference, us", "interval", "of a step of 8 ms"),
            rows=[
                (
                    f"{statistics.median(without):.1f}",
                    f"{statistics.median(with_hooks):.1f}",
                    f"{added.median:+.1f}",
                    f"{added.low:+.1f} to {added.high:+.1f}",
                    f"{100 * added.median / SHORT_STEP:+.2f} %",
                )
            ],
            raw={"without": without, "with": with_hooks},
        ),
    )


def measure(device: str, rounds: int = ROUNDS) -> tuple[list[float], list[float]]:
    """Microseconds of a step in each process: without hooks, and with them."""
    pairs = [(steps(device, "0"), steps(device, "1")) for _ in range(rounds)]
    return [bare for bare, _ in pairs], [own for _, own in pairs]


def steps(device: str, hooks: str) -> float:
    """Microseconds of the median step of one process."""
    with tempfile.TemporaryDirectory() as folder:
        file = heartbeat.prepare(Path(folder) / "heartbeat")
        search = os.pathsep.join([str(ROOT / "trainer"), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {"PYTHONPATH": search, "OMP_NUM_THREADS": "1", "KIT_SCRIPT_HOOKS": hooks}
        done = subprocess.run(
            [sys.executable, "-c", PLAIN, device, str(STEPS)],
            check=True,
            env={**os.environ, **env, "KIT_HEARTBEAT_FILE": str(file)},
            stdout=subprocess.PIPE,
            text=True,
        )
    return float(done.stdout)


if __name__ == "__main__":
    main()
