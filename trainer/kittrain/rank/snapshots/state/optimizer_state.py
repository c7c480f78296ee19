"""One optimizer's state by the names of its parameters, unchanged: no copies, and no casts to the parameters' type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from kittrain.rank.snapshots.files import tree
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError

PARAMETERS: Final = frozenset({"params", "param_names"})  # of a parameter group; the other keys are hyperparameters
ParameterNames = Mapping[Tensor, str]


def live(optimizer: Optimizer, names: ParameterNames) -> dict[str, Any]:
    """Its state and parameter groups, with the tensors themselves."""
    states: dict[Any, Any] = optimizer.state
    found: dict[str, Any] = {
        "state": {names[key]: state for key, state in states.items() if isinstance(key, Tensor)},
        "param_groups": _groups(optimizer, names),
    }
    if shared := {key: state for key, state in states.items() if not isinstance(key, Tensor)}:
        found["shared"] = shared  # state that belongs to no single parameter
    return found


def apply(optimizer: Optimizer, names: ParameterNames, saved: Any) -> None:
    """As ``Optimizer.load_state_dict``, but without copies and casts."""
    parameters = {name: parameter for parameter, name in names.items()}
    optimizer.state.clear()
    optimizer.state.update({parameters[name]: state for name, state in saved["state"].items()})
    optimizer.state.update(saved.get("shared", {}))
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        group.update({key: value for key, value in saved_group.items() if key not in PARAMETERS})
    # __setstate__ adds defaults that an earlier version of the optimizer did not save.
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})


def owners(optimizer: Optimizer, names: ParameterNames, rest: Any) -> dict[str, Tensor]:
    """The parameter that each tensor of its saved state belongs to, by the tensor's name.

    Args:
        optimizer: of this run.
        names: of its parameters.
        rest: what was saved of it, with placeholders for tensors.

    Raises:
        IncompatibleError: it was saved with other parameter groups.
    """
    current, saved = _groups(optimizer, names), rest["param_groups"]
    if len(current) != len(saved):
        raise IncompatibleError(f"its optimizer has {len(saved)} parameter groups, and this one {len(current)}")
    for number, (one, other) in enumerate(zip(current, saved, strict=True)):
        if differing := sorted(set(one["params"]) ^ set(other["params"])):
            raise IncompatibleError(f"its optimizer has other parameters in group {number}, such as {differing[0]}")
    parameters = {name: parameter for parameter, name in names.items()}
    return {tensor: parameters[name] for name, state in rest["state"].items() for tensor in tree.tensor_names(state)}


def on_host(rest: Any) -> frozenset[str]:
    """The tensors of a state saved on CPUs that are in main memory on GPU ranks, too: torch's optimizers' defaults."""
    on_device = {
        name for one in rest["param_groups"] if one.get("capturable") or one.get("fused") for name in one["params"]
    }
    return frozenset(
        tensor
        for name, state in rest["state"].items()
        for tensor in tree.tensor_names(state)
        if tensor.endswith("/step") and name not in on_device
    )


def new_tensor(parameter: Tensor, shape: torch.Size, dtype: torch.dtype, *, host: bool) -> Tensor:
    """A new tensor for a parameter's state; ``host`` puts it in main memory."""
    if host:
        return torch.empty(shape, dtype=dtype)
    if shape == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    if isinstance(parameter, DTensor) and shape:
        return parameter.detach().new_empty(shape, dtype=dtype)
    return torch.empty(shape, dtype=dtype, device=parameter.device)


def _groups(optimizer: Optimizer, names: ParameterNames) -> list[dict[str, Any]]:
    return [
        {**group, "params": [names[parameter] for parameter in group["params"]]} for group in optimizer.param_groups
    ]
