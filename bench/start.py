"""How long kitctl takes to start, beside torchx: whole processes, every command once a round."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import ROOT, Result, interval, save

ROUNDS = 25
RIVAL = ROOT / ".cache" / "bench" / "torchx"
KITCTL = str(ROOT / ".venv" / "bin" / "kitctl")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "kitctl --help": [KITCTL, "--help"],
    "kitctl submit --help": [KITCTL, "submit", "--help"],
    "kitctl render --nodes 3": [KITCTL, "render", "--nodes", "3"],
    "torchx --help": [str(RIVAL / "bin" / "torchx"), "--help"],
}
YARDSTICK = "torchx --help"


def main() -> None:
    """Measure, and write the table."""
    _install_rival()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            seconds[name].append(_wall(command))
    save(
        "start",
        Result(
            note=f"Wall time of the whole process, {ROUNDS} rounds of all commands in turn: median and 95 % interval; "
            "the ratio is the median of the rounds' own ratios. Aims: --help within 100 ms and no slower than torchx "
            "(from its package, in an environment of its own), render within 250 ms.",
            columns=("command", "median ms", "interval ms", "of torchx --help"),
            rows=[_row(name, seconds[name], seconds[YARDSTICK]) for name in COMMANDS],
            raw=seconds,
        ),
    )


def _row(name: str, own: list[float], rival: list[float]) -> tuple[str, ...]:
    wall = interval([1000 * second for second in own])
    ratio = interval([mine / theirs for mine, theirs in zip(own, rival, strict=True)])
    return f"`{name}`", f"{wall.median:.0f}", f"{wall.low:.0f} to {wall.high:.0f}", f"{ratio.median:.2f}"


def _wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path.home())
    return time.perf_counter() - start


def _install_rival() -> None:
    if (RIVAL / "bin" / "torchx").exists():
        return
    print("  installing torchx into an environment of its own", flush=True)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    environ = {"UV_SYSTEM_CERTS": "1", **os.environ}
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(RIVAL)], check=True, env=environ)
    python = str(RIVAL / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "--python", python, "torchx"], check=True, env=environ)
    subprocess.run([str(RIVAL / "bin" / "torchx"), "--help"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
