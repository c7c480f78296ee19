"""A situation of the corpus: what makes it on this machine, or on a cluster, and what has to be told of it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

GROUP: Final = """
import os, sys, time, torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
"""
DDP: Final = (
    GROUP
    + """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A situation.

    Attributes:
        name: in a few words.
        script: that makes it, on two nodes.
        cause: regular expression of what has to come first: the cause; of a job that stands still, the fact; of one
            that has succeeded, the note.
        fix: of a fix that is right; empty: none is asked for.
        options: of submit.
        arguments: of the script.
        files: next to the script, by path.
        before: another script, which runs first, under the same name, to its end.
        healthy: nothing is wrong: no cause and no fix may be told, and nothing may be ended.
        spec: of the job file, in YAML; on a cluster alone, as all that follows.
        objects: YAML that is applied before; NAMESPACE stands for the situation's own, IMAGE for the cluster's.
        prepare: shell commands, likewise.
        account: the service account that submits it; empty: the administrator.
        later: shell commands, once its ranks run.
        after: shell commands that remove what belongs to no namespace.
        first: of the blind set: whether cause and fix were right when it was made for the first time.
    """

    name: str
    script: str
    cause: str = ""
    fix: str = ""
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    healthy: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    first: tuple[bool, bool] | None = None
    on: Literal["local", "cluster"] = "local"
    spec: str = ""
    objects: str = ""
    prepare: str = ""
    account: str = ""
    later: str = ""
    after: str = ""

    @property
    def half(self) -> Literal["first", "second", "blind"]:
        """By chance, and the same each time: rules are written on the first half. The blind set is neither."""
        if self.first:
            return "blind"
        return "second" if zlib.crc32(self.name.encode()) % 2 else "first"

    @property
    def file(self) -> str:
        """Of what was recorded."""
        return f"{self.name.replace(' ', '-')}.json"


def only(rank: int, what: str) -> str:
    """A statement for one rank."""
    return f"if rank == {rank}:\n    {what}\ndist.barrier()\n"


ONCE: Final = ("--max-restarts", "0")
