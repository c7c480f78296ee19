"""Start-up time of kitctl compared with torchx: whole processes, each command once per round."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure import ROOT, Result, interval, save

ROUNDS = 25
TORCHX = ROOT / ".cache" / "bench" / "torchx"
KITCTL = str(ROOT / ".venv" / "bin" / "kitctl")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "kitctl --help": [KITCTL, "--help"],
    "kitctl submit --help": [KITCTL, "submit", "--help"],
    "kitctl render --nodes 3": [KITCTL, "render", "--nodes", "3"],
    "torchx --help": [str(TORCHX / "bin" / "torchx"), "--help"],
}
BASELINE = "torchx --help"
# Bytecode is cached, as on a user's machine.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Run:
    """One process: wall time and CPU time in seconds; the latter depends less on the load of the machine."""

    wall: float
    cpu: float


def main() -> None:
    """Measure, and write the table."""
    install_torchx()
    runs: dict[str, list[Run]] = {name: [] for name in COMMANDS}
    for number in range(ROUNDS + 1):
        for name, command in COMMANDS.items():
            run = _run(command)
            if number:  # the first round compiles
                runs[name].append(run)
    save(
        "start",
        Result(
            note=f"Whole processes, {ROUNDS} rounds of all commands in turn: medians, and a 95 % interval of the wall "
            "time; the ratio is the median of the ratios per round. Goals: --help within 100 ms and no slower than "
            "torchx (installed in its own environment), render within 250 ms.",
            columns=("command", "wall ms", "interval", "CPU ms", "wall / torchx --help"),
            rows=[_row(name, runs[name], runs[BASELINE]) for name in COMMANDS],
            raw={name: [asdict(run) for run in some] for name, some in runs.items()},
        ),
    )


def _row(name: str, own: list[Run], baseline: list[Run]) -> tuple[str, ...]:
    wall = interval([1000 * run.wall for run in own])
    cpu = statistics.median(1000 * run.cpu for run in own)
    ratio = statistics.median(mine.wall / theirs.wall for mine, theirs in zip(own, baseline, strict=True))
    return f"`{name}`", f"{wall.median:.0f}", f"{wall.low:.0f} to {wall.high:.0f}", f"{cpu:.0f}", f"{ratio:.2f}"


def _run(command: list[str]) -> Run:
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path.home(), env=ENVIRON)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(wall=wall, cpu=after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def install_torchx() -> str:
    """Install torchx, with its Kubernetes dependencies, in its own environment; returns the path of its program."""
    program = str(TORCHX / "bin" / "torchx")
    if (TORCHX / "kubernetes").exists():
        return program
    print("  installing torchx into its own environment", flush=True)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    environ = {"UV_SYSTEM_CERTS": "1", **os.environ}
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(TORCHX)], check=True, env=environ)
    python = str(TORCHX / "bin" / "python")
    subprocess.run(
        [*uv, "pip", "install", "--compile-bytecode", "--python", python, "torchx[kubernetes]"], check=True, env=environ
    )
    (TORCHX / "kubernetes").touch()
    return program


if __name__ == "__main__":
    main()
