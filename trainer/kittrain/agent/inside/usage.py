"""Prints what this node's ranks use as JSON: ``python -P -m kittrain.agent.inside.usage``.

``kitctl top`` runs it next to the agent. It reads /proc twice, and asks ``nvidia-smi`` where there is one; neither the
agent nor the ranks have a part in it. Linux only. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from kitjob import typed
from kitjob.usage import NodeUse, RankUsage
from kittrain.agent.fault_injection import agent_here, processes, ranks_of

MOMENT: Final = 1.0  # seconds between both looks
GPU_SECONDS: Final = 5.0  # for nvidia-smi, which takes long where no process keeps the driver loaded
TICKS: Final = os.sysconf("SC_CLK_TCK")
CGROUP: Final = Path("/sys/fs/cgroup")
QUERY: Final = "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total"
MIB: Final = 1 << 20


class Gpu(NamedTuple):
    """A GPU of the node; None: not known."""

    number: int
    uuid: str
    busy: float | None
    memory: int | None
    total: int | None


def main() -> None:
    """Print a ``NodeUse`` for each agent."""
    parser = argparse.ArgumentParser("kittrain.agent.inside.usage", description="Print what ranks use.")
    parser.add_argument("--agent", type=int, metavar="PID", action="append", help="an agent (default: the only one)")
    given = parser.parse_args().agent
    by_agent = [ranks_of(agent) for agent in given or [agent_here()]]
    found = {one.rank: one for one in usage({rank: pid for ranks in by_agent for rank, pid in ranks.items()})}
    limits = (None, None) if given else (_cores(CGROUP), _bytes(CGROUP))  # of a pod; local nodes have none
    nodes = [
        NodeUse(ranks=tuple(found[rank] for rank in sorted(ranks)), cpu_limit=limits[0], memory_limit=limits[1])
        for ranks in by_agent
    ]
    json.dump(typed.encode(nodes), sys.stdout)


def usage(ranks: Mapping[int, int], moment: float = MOMENT) -> list[RankUsage]:
    """What ranks use, given their process ids: two looks, a ``moment`` apart."""
    begun, before = time.monotonic(), _cpu(ranks.values())
    graphics = gpus() if ranks else []
    time.sleep(max(moment - (time.monotonic() - begun), 0.0))
    after = _cpu(ranks.values())
    seconds = time.monotonic() - begun
    return [
        RankUsage(
            rank=rank,
            pid=pid,
            cpu=round(_grown(before[pid], after[pid]) / seconds, 2),
            memory=sum(map(memory_of, after[pid])),
            processes=len(after[pid]),
            **_of(gpu_of(pid, graphics)),
        )
        for rank, pid in sorted(ranks.items())
    ]


def _grown(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Seconds that processes have used since; those that are new, all of theirs."""
    return sum(max(spent - before.get(pid, 0.0), 0.0) for pid, spent in after.items())


def _of(gpu: Gpu | None) -> dict[str, Any]:
    if gpu is None:
        return {}
    return {"gpu": gpu.number, "gpu_busy": gpu.busy, "gpu_memory": gpu.memory, "gpu_total": gpu.total}


def _cpu(leaders: Iterable[int]) -> dict[int, dict[int, float]]:
    """Of each rank, by process, the seconds of CPU that it has used."""
    children: dict[int, list[int]] = {}
    for one in processes():
        children.setdefault(one.parent, []).append(one.pid)
    found = {}
    for leader in leaders:
        family, known = [leader], set[int]()
        while family:
            pid = family.pop()
            known.add(pid)
            family += [child for child in children.get(pid, ()) if child not in known]
        found[leader] = {pid: spent for pid in known if (spent := _spent(pid)) is not None}
    return found


def _spent(pid: int) -> float | None:
    with suppress(OSError, ValueError, IndexError):  # it has ended
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return None


def memory_of(pid: int) -> int:
    """Bytes that a process holds: its share of what it shares, else all of it; 0 if it has ended."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def gpus() -> list[Gpu]:
    """The GPUs of this node, as ``nvidia-smi`` tells; none without it."""
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [program, QUERY, "--format=csv,noheader,nounits"],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GPU_SECONDS,
        )
        return [gpu for line in done.stdout.splitlines() if (gpu := _gpu(line.split(",")))]
    return []


def _gpu(fields: Sequence[str]) -> Gpu | None:
    with suppress(ValueError):
        index, uuid, busy, memory, total = (field.strip() for field in fields)
        share = _number(busy)
        used, has = _number(memory), _number(total)
        return Gpu(
            int(index),
            uuid,
            None if share is None else share / 100,
            None if used is None else int(used * MIB),
            None if has is None else int(has * MIB),
        )
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], as of a part of a GPU
        return None


def gpu_of(pid: int, found: Sequence[Gpu]) -> Gpu | None:
    """A rank's GPU: that of its LOCAL_RANK, among those that it may see."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if not found or pairs == [""]:  # it is about to become another program
        return None
    env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    seen = [one.strip() for one in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    by_name = {name: gpu for gpu in found for name in (str(gpu.number), gpu.uuid)}
    chosen = [by_name[one] for one in seen if one in by_name] if "CUDA_VISIBLE_DEVICES" in env else [*found]
    place = env.get("LOCAL_RANK", "0")
    return chosen[int(place)] if place.isdecimal() and int(place) < len(chosen) else None


def _cores(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    return None


def _bytes(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        text = (folder / "memory.max").read_text().strip()
        return None if text == "max" else int(text)
    return None


if __name__ == "__main__":
    main()
