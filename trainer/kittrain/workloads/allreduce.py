"""Adds a tensor over all ranks: the smallest proof that a cluster works, then how fast it does.

    torchrun --nproc-per-node 4 -m kittrain.workloads.allreduce
    kitctl submit --nodes 3 --follow -- -m kittrain.workloads.allreduce --plot bandwidth.png

Prints one line for each size, with the columns of nccl-tests: ``algbw`` is the size divided by the time; ``busbw`` is
``algbw * 2 * (n - 1) / n`` for n ranks, which compares to the speed of the links whatever the number of ranks.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from kittrain import World, join, mark_finished

FACTOR: Final = 4  # from one size to the next
WARMUPS: Final = 5
MAX_REPEATS: Final = 1000
BAR: Final = 24  # characters of the longest bar
UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Result:
    """One size: the mean time of an all-reduce, on the slowest rank."""

    size: int  # bytes
    repeats: int
    seconds: float
    ranks: int

    @property
    def algbw(self) -> float:
        """Bytes per second that the caller sees."""
        return self.size / self.seconds

    @property
    def busbw(self) -> float:
        """Bytes per second that each rank's link carries, for the best algorithm."""
        return self.algbw * 2 * (self.ranks - 1) / self.ranks


def main(argv: Sequence[str] | None = None) -> None:
    """Check the sum, then measure each size."""
    args = options().parse_args(argv)
    if args.max_bytes < args.min_bytes:
        raise SystemExit(f"allreduce: --max-bytes {args.max_bytes} is less than --min-bytes {args.min_bytes}")
    if args.plot and not importlib.util.find_spec("matplotlib"):
        raise SystemExit("allreduce: --plot needs matplotlib: pip install matplotlib, or leave --plot out")
    with join() as world:
        check(world)
        if world.size > 1:
            report(world, args)
        mark_finished()


def check(world: World) -> None:
    """Add the ranks, and a tensor whose elements differ, over all ranks.

    Raises:
        SystemExit: an element of this rank's sum is wrong.
    """
    where = f"{dist.get_backend()}, {world.device.type}" if world.size > 1 else "a lone process: nothing to measure"
    total = int(world.sum(torch.tensor([world.rank], device=world.device)).item())
    positions = torch.arange(100_000, device=world.device) % 97
    wrong = int((world.sum(positions + world.rank) != world.size * positions + _sum_of_ranks(world)).sum().item())
    if wrong or total != _sum_of_ranks(world):
        raise SystemExit(
            f"allreduce: rank {world.rank} got a wrong sum: {total} for the ranks, which add up to "
            f"{_sum_of_ranks(world)}, and {wrong} of {len(positions)} elements of a tensor"
        )
    world.print(f"sum of ranks {total}, correct for {world.size} rank{'s'[: world.size - 1]} ({where})")


def _sum_of_ranks(world: World) -> int:
    return world.size * (world.size - 1) // 2


def report(world: World, args: argparse.Namespace) -> None:
    """Measure each size; print the table, and write the plot if one is asked for."""
    results = [measure(world, size, args.seconds) for size in sizes(args.min_bytes, args.max_bytes)]
    world.print(table(results))
    if args.plot and world.is_main:
        plot(results, args.plot)
        world.print(f"plot written to {args.plot}")


def sizes(smallest: int, largest: int) -> list[int]:
    """Bytes of each tensor: whole float32 elements, at least one."""
    found = [max(4, smallest // 4 * 4)]
    while found[-1] * FACTOR <= largest:
        found.append(found[-1] * FACTOR)
    return found


def measure(world: World, size: int, seconds: float) -> Result:
    """Time all-reduces of one size. Collective: all ranks repeat it equally often, for about ``seconds``."""
    tensor = torch.zeros(size // 4, device=world.device)  # zeros: repeated sums do not overflow
    once = _time(world, tensor, WARMUPS)
    repeats = max(1, min(MAX_REPEATS, int(seconds / once)))
    return Result(size, repeats, _time(world, tensor, repeats), world.size)


def _time(world: World, tensor: torch.Tensor, repeats: int) -> float:
    """Mean seconds of an all-reduce on the slowest rank; equal on all ranks."""
    world.barrier()
    _wait_for_device(world)
    begin = time.perf_counter()
    for _ in range(repeats):
        world.sum(tensor)
    _wait_for_device(world)
    mine = torch.tensor((time.perf_counter() - begin) / repeats, dtype=torch.float64, device=world.device)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return float(mine)


def _wait_for_device(world: World) -> None:
    """Wait until a GPU is idle: collectives on it are asynchronous."""
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def table(results: Sequence[Result]) -> str:
    """The results as text, with a bar for the bus bandwidth."""
    highest = max(result.busbw for result in results)
    lines = [f"{'size':>10}  {'repeats':>7}  {'time (us)':>11}  {'algbw (GB/s)':>12}  {'busbw (GB/s)':>12}"]
    for one in results:
        row = (
            f"{binary(one.size):>10}  {one.repeats:>7}  {1e6 * one.seconds:>11.1f}  "
            f"{one.algbw / 1e9:>12.3f}  {one.busbw / 1e9:>12.3f}  {'#' * round(BAR * one.busbw / highest)}"
        )
        lines.append(row.rstrip())
    return "\n".join(lines)


def plot(results: Sequence[Result], path: str) -> None:
    """Write bandwidth and time by size, side by side, in the format that the file's name ends in."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    bytes_ = [one.size for one in results]
    curve: dict[str, Any] = {"marker": "o", "markersize": 3}
    left.plot(bytes_, [one.busbw / 1e9 for one in results], label="bus", **curve)
    left.plot(bytes_, [one.algbw / 1e9 for one in results], label="algorithm", **curve)
    left.set(xscale="log", xlabel="bytes", ylabel="bandwidth (GB/s)", ylim=(0, None))
    left.legend()
    right.plot(bytes_, [1e6 * one.seconds for one in results], **curve)
    right.set(xscale="log", yscale="log", xlabel="bytes", ylabel="time (us)")
    figure.suptitle(f"all-reduce of float32, {results[0].ranks} ranks")
    figure.savefig(path, dpi=120)


def binary(size: int) -> str:
    """``65536`` is ``64 KiB``."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor:
            return f"{size / factor:.4g} {unit}iB"
    return f"{size} B"


def in_bytes(text: str) -> int:
    """``4K``, ``64M`` or ``1G``, with or without ``iB``, as a number of bytes.

    Raises:
        ArgumentTypeError: it is no size of at least one byte.
    """
    number = text.upper().removesuffix("IB").removesuffix("B")
    factor = UNITS.get(number[-1:], 1)
    digits = number[:-1] if number[-1:] in UNITS else number
    if not digits.isdecimal() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 4K, 64M or 1G")
    return int(digits) * factor


def options() -> argparse.ArgumentParser:
    """The command line; sizes are named as in nccl-tests."""
    parser = argparse.ArgumentParser("allreduce", description="Check and measure the all-reduce of all ranks.")
    parser.add_argument("-b", "--min-bytes", type=in_bytes, default=4 << 10, metavar="SIZE", help="default 4K")
    parser.add_argument("-e", "--max-bytes", type=in_bytes, default=16 << 20, metavar="SIZE", help="default 16M")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size; default 0.3")
    parser.add_argument("--plot", metavar="FILE", help="write a plot as well (.png, .svg, .pdf); needs matplotlib")
    return parser


if __name__ == "__main__":
    main()
