"""The training state as tensors by name and a rest without tensors, and back. It is the same for any number of ranks.

Parameters and optimizer states go by the parameters' names, so that what plain, DDP and FSDP2 models save is alike.
"""

from __future__ import annotations

import copy
import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainer.snapshots.snapshot import ForeignError

Tensors = dict[str, Tensor]
PLACE: Final = "tensor/"  # a text in the rest that begins so stands for a tensor


@dataclass(frozen=True, kw_only=True)
class State:
    """What a training run changes, apart from its cursor and the random number generators."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None = None

    @property
    def signature(self) -> str:
        """SHA-256 over names, shapes and types of all that the model saves."""
        facts = [(name, tuple(one.shape), str(one.dtype)) for name, one in self.model.state_dict().items()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def sharded(self) -> bool:
        """Whether each rank holds only a part of it."""
        return any(isinstance(one, DTensor) for one in self.model.parameters())

    def weights(self) -> Tensors:
        """The model's bare state dict in main memory: what a model file holds. Collective; empty but on rank 0."""
        if not self.sharded:
            return {name: one.cpu() for name, one in self.model.state_dict().items()}
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(self.model, options=options)  # type: ignore[return-value]  # all are tensors

    def capture(self) -> tuple[Tensors, Any]:
        """The tensors themselves, not copies, and the rest, which does not change any more.

        As torch's ``get_state_dict``, which asks each parameter for its name again: too long for training to wait.
        """
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        optimizer = {
            "state": {names[parameter]: state for parameter, state in self.optimizer.state.items()},
            "param_groups": [
                {**group, "params": [names[parameter] for parameter in group["params"]]}
                for group in self.optimizer.param_groups
            ],
        }
        scheduler = self.scheduler.state_dict() if self.scheduler else None
        tensors, rest = split({"model": self.model.state_dict(), "optimizer": optimizer, "scheduler": scheduler})
        return tensors, copy.deepcopy(rest)

    def like(self) -> Tensors:
        """New tensors like those of the state, to be filled. The optimizer makes its own for this and forgets them."""
        before = self.optimizer.state_dict()
        get_optimizer_state_dict(self.model, self.optimizer)
        tensors, _ = self.capture()
        self.optimizer.load_state_dict(before)
        return {name: torch.empty_like(tensor) for name, tensor in tensors.items()}

    def load(self, tensors: Tensors, rest: Any) -> None:
        """Set it, in place.

        Raises:
            ForeignError: it is the state of another optimizer.
        """
        states = join(tensors, rest)
        try:
            set_state_dict(
                self.model,
                self.optimizer,
                model_state_dict=states["model"],
                optim_state_dict=states["optimizer"],
            )
        except (KeyError, RuntimeError, ValueError) as error:
            raise ForeignError(f"its optimizer has other parameter groups or states ({error})") from error
        if self.scheduler and states["scheduler"]:
            self.scheduler.load_state_dict(states["scheduler"])


def split(tree: Any) -> tuple[Tensors, Any]:
    """Take the tensors out of nested dicts, lists and tuples; the rest names them where they were."""
    tensors: Tensors = {}

    def take(value: Any, path: str) -> Any:
        if not isinstance(value, Tensor):
            return value
        tensors[path] = value
        return PLACE + path

    return tensors, _walk(tree, take)


def join(tensors: Tensors, rest: Any) -> Any:
    """Put the tensors back into the rest."""

    def put(value: Any, _path: str) -> Any:
        return tensors[value.removeprefix(PLACE)] if isinstance(value, str) and value.startswith(PLACE) else value

    return _walk(rest, put)


def _walk(tree: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """The tree with each leaf exchanged; containers of other types count as leaves."""
    within = f"{path}/" if path else ""
    if type(tree) in {dict, OrderedDict}:
        return {key: _walk(value, leaf, f"{within}{key}") for key, value in tree.items()}
    if type(tree) in {list, tuple}:
        return type(tree)(_walk(value, leaf, f"{within}{index}") for index, value in enumerate(tree))
    return leaf(tree, path)


def dump(value: Any) -> bytes:
    """Small things that are no tensors of the state, in torch's file format."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def load(content: bytes) -> Any:
    """Read verified bytes, without executing anything in them, into main memory."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)  # noqa: TID251  verified by the caller
