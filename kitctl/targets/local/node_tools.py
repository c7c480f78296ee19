"""Runs tools of the trainer next to the agents of a local job: what looks into its ranks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from kitctl.base import names
from kitctl.base.errors import TargetError
from kitctl.state.running_job import RankPlace
from kitctl.state.stacks import NodeStacks, of_nodes
from kitctl.state.usage import NodeUsage
from kitctl.state.usage import of_nodes as usage_of_nodes
from kitctl.targets.conflicts import node_gone, trainer_failed
from kitctl.targets.local import interpreter, snapshot_tool
from kitctl.targets.local.folder import JobFolder
from kitctl.targets.local.interpreter import with_library

T = TypeVar("T")
SECONDS: Final = 30.0  # for a tool that ends by itself; a busy machine is slow to start Python


def stacks(folder: JobFolder, nodes: frozenset[int]) -> list[NodeStacks]:
    """The stacks of the ranks of running nodes: one process asks all of them.

    Raises:
        TargetError: it failed.
    """
    return _of_agents(folder, nodes, names.RANK_STACKS, of_nodes)


def usage(folder: JobFolder) -> list[NodeUsage]:
    """What the ranks of running nodes use: one process looks at all of them.

    Raises:
        TargetError: it failed.
    """
    return _of_agents(folder, frozenset(), names.RANK_USAGE, usage_of_nodes)


def _of_agents(
    folder: JobFolder, nodes: frozenset[int], module: str, read: Callable[[Sequence[int], bytes], list[T]]
) -> list[T]:
    """What a module prints of the agents of running nodes, read; empty without such nodes."""
    found = agents(folder, nodes)
    options = [word for pid in found.values() for word in ("--agent", str(pid))]
    return read([*found], _output(folder, [module, *options])) if found else []


def profile(folder: JobFolder, place: RankPlace, steps: int, seconds: float) -> Iterator[bytes]:
    """A trace of some steps of a rank, as it arrives.

    Raises:
        ConflictError: the rank's node is not running.
        TargetError: there is none.
    """
    words = [*names.profile_command(place.rank, steps, seconds), "--agent", str(agent(folder, place.node))]
    return snapshot_tool.output(command(folder, words), folder.job.library)


def agents(folder: JobFolder, nodes: frozenset[int] = frozenset()) -> dict[int, int]:
    """The process ids of the agents of running nodes, by node; empty: of all."""
    running = [node for node in folder.nodes() if (not nodes or node.index in nodes) and node.alive()]
    started = {node.index: node.started(node.attempts) for node in running}
    return {index: one.pid for index, one in started.items() if one}


def agent(folder: JobFolder, node: int) -> int:
    """The process id of a node's agent.

    Raises:
        ConflictError: it is not running.
    """
    found = agents(folder, frozenset({node}))
    if node not in found:
        raise node_gone(node)
    return found[node]


def command(folder: JobFolder, words: Sequence[str]) -> list[str]:
    """The command line of a module of the trainer, for the interpreter that the job runs with."""
    return interpreter.command(folder.job.python, words)


def _output(folder: JobFolder, words: Sequence[str]) -> bytes:
    env = with_library(os.environ, folder.job.library)
    try:
        done = subprocess.run(command(folder, words), check=False, capture_output=True, env=env, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TargetError(f"{words[0]} has not ended within {SECONDS:.0f} s", fix="try again") from error
    if done.returncode:
        raise trainer_failed(done.stderr)
    return done.stdout
