"""The training state as tensors by name plus a rest without tensors, and back. Independent of the number of ranks.

Parameters and optimizer states use the plain module's parameter names, so that plain, compiled, DDP and FSDP2 models
save the same. A saved state is read in place into the tensors that are trained.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kittrain.snapshots import tree
from kittrain.snapshots.names import Names
from kittrain.snapshots.snapshot import MODEL, IncompatibleError
from kittrain.snapshots.tree import Structure, Tensors

EXTRA: Final = "_extra_state"  # torch's key for what a module saves besides its parameters and buffers
PARAMETERS: Final = frozenset({"params", "param_names"})  # of a parameter group; the other keys are hyperparameters


class StateError(Exception):
    """The state could not be restored if it were saved; names the part, and the fix."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What training changes, except the data cursor and the random number generators."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None = None

    @property
    def signature(self) -> str:
        """SHA-256 over names, shapes and types of all parameters and buffers that the model saves."""
        saved = {name: one for name, one in self.model_state().items() if not name.endswith(EXTRA)}
        facts = [(name, tuple(one.shape), str(one.dtype)) for name, one in saved.items()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def sharded(self) -> bool:
        """Whether each rank holds only a part of the model (FSDP2)."""
        return any(isinstance(one, DTensor) for one in self.model.parameters())

    def model_state(self) -> dict[str, Any]:
        """The model's state dict by plain names, with the parameters themselves, not copies."""
        names = Names(self.model)
        return {names.bare(name): one for name, one in self.model.state_dict(keep_vars=True).items()}

    def capture(self) -> tuple[Tensors, Any]:
        """The tensors themselves, not copies, and the rest, which is a copy if it is mutable.

        Raises:
            StateError: a part of it could not be restored.
        """
        tensors, rest = self._live()
        opaque = tree.opaque(rest)
        if problem := tree.unloadable(opaque):
            path, value, error = problem
            raise StateError(
                f"{path} is {value!r}, which a snapshot cannot restore ({_brief(error)}): use numbers, text, "
                f"tensors, or lists and dicts of them, or allow its class with "
                f"torch.serialization.add_safe_globals"
            ) from error
        return tensors, copy.deepcopy(rest) if opaque else rest

    def targets(self, structure: Structure, rest: Any) -> Tensors:
        """The tensors to read a saved state into: the trained ones, and new ones for what does not exist yet.

        This changes nothing. From the first byte that is read into them until ``apply``, the state is neither the old
        nor the saved one.

        Args:
            structure: of the saved state.
            rest: of the saved state.

        Raises:
            IncompatibleError: it is the state of another model or optimizer.
        """
        live, _ = self._live()
        if missing := [name for name in live if name.startswith(MODEL) and name not in structure and EXTRA not in name]:
            raise IncompatibleError(f"its model has no {missing[0].removeprefix(MODEL)}")
        owners = self._owners(rest)
        on_host = _on_host(rest)
        targets = {}
        for name, (shape, dtype) in structure.items():
            known = live.get(name)
            if known is not None and (known.shape, known.dtype) == (shape, dtype):
                targets[name] = known
            elif name in owners:
                targets[name] = _new_tensor(owners[name], shape, dtype, host=on_host(name))
            else:
                targets[name] = torch.empty(shape, dtype=dtype, device=known.device if known is not None else "cpu")
        return targets

    def apply(self, tensors: Tensors, rest: Any) -> None:
        """Switch to a saved state: ``targets`` with all of it read, and its rest."""
        saved = tree.join(tensors, rest)
        names = Names(self.model)
        plain = {raw: names.bare(raw) for raw in self.model.state_dict(keep_vars=True)}
        # The model's own tensors are set already; this restores extra state.
        self.model.load_state_dict(
            {raw: saved["model"][bare] for raw, bare in plain.items() if bare in saved["model"]}, strict=False
        )
        self._apply_optimizer(saved["optimizer"])
        if self.scheduler and saved["scheduler"]:
            self.scheduler.load_state_dict(saved["scheduler"])

    def _apply_optimizer(self, saved: Any) -> None:
        """As ``Optimizer.load_state_dict``, but without copies and without casts to the parameters' type."""
        parameters = {name: parameter for parameter, name in self._parameter_names().items()}
        optimizer = self.optimizer
        optimizer.state.clear()
        optimizer.state.update({parameters[name]: state for name, state in saved["state"].items()})
        optimizer.state.update(saved.get("shared", {}))
        for group, saved_group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
            group.update({key: value for key, value in saved_group.items() if key not in PARAMETERS})
        # __setstate__ adds defaults that an earlier version of the optimizer did not save.
        optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})

    def _live(self) -> tuple[Tensors, Any]:
        """All tensors by name, and the rest."""
        names = self._parameter_names()
        states: dict[Any, Any] = self.optimizer.state
        optimizer: dict[str, Any] = {
            "state": {names[key]: state for key, state in states.items() if isinstance(key, Tensor)},
            "param_groups": self._groups(names),
        }
        if shared := {key: state for key, state in states.items() if not isinstance(key, Tensor)}:
            optimizer["shared"] = shared  # optimizer state that belongs to no single parameter
        scheduler = self.scheduler.state_dict() if self.scheduler else None
        tensors, rest = tree.split({"model": self.model_state(), "optimizer": optimizer, "scheduler": scheduler})
        if any(parameter.device.type != "cpu" for parameter in names):
            states_of = tree.tensor_names(rest["optimizer"]["state"])
            rest["host"] = [name for name in states_of if tensors[name].device.type == "cpu"]
        return tensors, rest

    def _groups(self, names: Mapping[Tensor, str]) -> list[dict[str, Any]]:
        return [
            {**group, "params": [names[parameter] for parameter in group["params"]]}
            for group in self.optimizer.param_groups
        ]

    def _parameter_names(self) -> dict[Tensor, str]:
        """The plain name of each parameter; the first one if it has several.

        Raises:
            StateError: the optimizer has a parameter that is not the model's.
        """
        names = Names(self.model)
        known: dict[Tensor, str] = {one: names.bare(name) for name, one in self.model.named_parameters()}
        for number, group in enumerate(self.optimizer.param_groups):
            for one in group["params"]:
                if one not in known:
                    raise StateError(
                        f"parameter group {number} of the optimizer has a parameter of shape {tuple(one.shape)} that "
                        f"the model does not have, so no snapshot would hold it: register it, or its module, in the "
                        f"model that Training is given"
                    )
        return known

    def _owners(self, rest: Any) -> dict[str, Tensor]:
        """The parameter that each tensor of a saved optimizer's state belongs to, by the tensor's name.

        Raises:
            IncompatibleError: it has other parameter groups.
        """
        names = self._parameter_names()
        live, saved = self._groups(names), rest["optimizer"]["param_groups"]
        if len(live) != len(saved):
            raise IncompatibleError(f"its optimizer has {len(saved)} parameter groups, and this one {len(live)}")
        for number, (one, other) in enumerate(zip(live, saved, strict=True)):
            if differing := sorted(set(one["params"]) ^ set(other["params"])):
                raise IncompatibleError(f"its optimizer has other parameters in group {number}, such as {differing[0]}")
        parameters = {name: parameter for parameter, name in names.items()}
        states = rest["optimizer"]["state"]
        return {tensor: parameters[name] for name, state in states.items() for tensor in tree.tensor_names(state)}


def _on_host(rest: Any) -> Any:
    """A predicate: whether a tensor of a saved optimizer's state, by name, is in main memory on GPU ranks too."""
    if "host" in rest:
        return frozenset(rest["host"]).__contains__
    groups = rest["optimizer"]["param_groups"]  # saved on CPUs: follow the defaults of torch's optimizers
    on_device = {name for one in groups if one.get("capturable") or one.get("fused") for name in one["params"]}
    return lambda name: name.endswith("/step") and name.split("/")[2] not in on_device


def _new_tensor(parameter: Tensor, shape: torch.Size, dtype: torch.dtype, *, host: bool) -> Tensor:
    """A new tensor for a parameter's optimizer state."""
    if host:
        return torch.empty(shape, dtype=dtype)
    if shape == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    if isinstance(parameter, DTensor) and shape:
        return parameter.detach().new_empty(shape, dtype=dtype)
    return torch.empty(shape, dtype=dtype, device=parameter.device)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else type(error).__name__
