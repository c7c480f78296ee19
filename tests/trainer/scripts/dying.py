"""Trains ``toy``, or what TRAINS names; its second rank dies, or its third one blocks, at a point of its 20th step.

Once. Or the second one dies, and the update of the first one is cut short.

python -m ... dying.py POINT MARKER toy's arguments
"""

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

INPUTS = 20  # of the models' first layers

point, marker = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ["RANK"])
forwards: list[bool] = []
exchanged: list[int] = []  # how many forward passes there were before


def reached(where: str) -> None:
    if len(forwards) != 20:
        return
    if where == point and rank == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "after the update" and point == "half applied":
        if rank == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and not marker.with_suffix(".half").exists():
            marker.with_suffix(".half").touch()
            raise RuntimeError("Connection closed by peer")  # as of an optimizer whose step communicates
    if where == "forward" and point == "blocked" and rank in {1, 2} and not marker.with_suffix(f".{rank}").exists():
        marker.with_suffix(f".{rank}").touch()
        if rank == 1:
            while not marker.with_suffix(".2").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)


def forward(module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> None:
    if not isinstance(module, torch.nn.Linear) or module.in_features != INPUTS:
        return
    forwards.append(True)
    reached("forward")
    if output.requires_grad:
        output.register_hook(lambda _: reached("backward"))


def exchange(*args: Any, **kwargs: Any) -> object:
    """A gradient's part is averaged over the replicas: the last of three layers."""
    exchanged.append(len(forwards))
    if exchanged[-3:] == [len(forwards)] * 3:
        reached("last exchange")
    return all_reduce(*args, **kwargs)


all_reduce = dist.all_reduce
vars(dist)["all_reduce"] = exchange
register_optimizer_step_pre_hook(lambda *_: reached("before the update"))
register_optimizer_step_post_hook(lambda *_: reached("after the update"))
register_module_forward_hook(forward)
importlib.import_module(os.environ.get("TRAINS", "kittrain.workloads.toy")).main(sys.argv[3:])
