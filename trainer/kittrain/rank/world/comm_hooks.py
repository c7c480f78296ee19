"""What DDP's communication hooks keep from step to step, as values that a snapshot can hold.

A hook such as ``powerSGD_hook`` adds this step's rounding errors to the next step's gradients, so a resumed run needs
them. Torch's own classes for such states have no ``state_dict``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

# Attributes of torch's states that change. What a script chooses, such as the rank of an approximation, stays its own.
CHANGING: Final[Mapping[type, tuple[str, ...]]] = {
    PowerSGDState: ("iter", "rng", "error_dict", "p_memory_dict", "q_memory_dict"),
    PostLocalSGDState: ("iter",),
}
MAX_BYTES: Final = 16 << 20  # of a rank's hook: every rank reads these values of all ranks when a run resumes


class HookStateError(Exception):
    """The state of a hook cannot be saved; says why, and the fix."""


def capture(hook: Callable[..., Any], state: Any) -> Any:
    """Plain values and tensors in main memory that no longer change; None if there is nothing to save.

    Raises:
        HookStateError: there is, but it cannot be saved.
    """
    if state is None or isinstance(state, dist.ProcessGroup):
        return None
    names = _changing(state)
    if names is None and not callable(getattr(state, "state_dict", None)):
        raise HookStateError(
            f"the state of the communication hook {_name(hook)}, {type(state).__name__}, is not saved, so a resumed "
            "run may differ: give it the methods state_dict and load_state_dict"
        )
    values = state.state_dict() if names is None else {name: getattr(state, name) for name in names}
    size = sum(one.nbytes for one in _tensors(values))
    if size > MAX_BYTES:
        raise HookStateError(
            f"the state of the communication hook {_name(hook)} has {size >> 20} MiB on each rank, which is too much "
            "to save, so a resumed run may differ. PowerSGD without error feedback and warm start has no such state"
        )
    return _saved(values)


def restore(state: Any, saved: Any, device: torch.device) -> None:
    """Set a hook's state to captured values; its tensors are put on a device."""
    names = _changing(state)
    if names is None:
        state.load_state_dict(saved)
        return
    for name in names:
        if name in saved:
            setattr(state, name, _revived(saved[name], getattr(state, name), device))


def _changing(state: Any) -> tuple[str, ...] | None:
    """The names of its attributes that change, for a state of torch's; None for a script's own."""
    if callable(getattr(state, "load_state_dict", None)):
        return None
    return next((names for kind, names in CHANGING.items() if isinstance(state, kind)), None)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, Tensor):
        yield value


def _saved(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _saved(one) for key, one in value.items()}
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if hasattr(value, "get_state"):  # numpy's RandomState
        name, keys, *rest = value.get_state()
        return [name, keys.tolist(), *rest]
    return deepcopy(value)


def _revived(saved: Any, former: Any, device: torch.device) -> Any:
    if isinstance(saved, dict):
        return {key: _revived(one, None, device) for key, one in saved.items()}
    if isinstance(saved, Tensor):
        return saved.to(device)
    if hasattr(former, "set_state"):
        former.set_state(tuple(saved))
        return former
    return saved


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))
