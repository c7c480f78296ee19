"""Moves a batch of any type to a device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

Move = Callable[[Any], Any]


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device.

    The first rule that matches applies, recursively in containers:

    - Objects with a method ``to`` (tensors, packed sequences, ``transformers.BatchEncoding``) are moved by it.
    - Lists, tuples and named tuples, mappings of any type, and dataclass instances become new ones of the same type.
    - Anything else is returned unchanged.
    """
    if callable(getattr(batch, "to", None)) and not isinstance(batch, type):
        return _moved(batch, device)

    def move(value: Any) -> Any:
        return to_device(value, device)

    match batch:
        case list() | tuple():
            return _sequence(batch, move)
        case Mapping():
            return _mapping(batch, move)
        case _ if is_dataclass(batch) and not isinstance(batch, type):
            return _instance(batch, move)
        case _:
            return batch


def _moved(value: Any, device: torch.device) -> Any:
    try:
        moved = value.to(device, non_blocking=True)
    except TypeError:  # a user's ``to`` may not have that parameter
        moved = value.to(device)
    return value if moved is None else moved  # it may have moved in place


def _sequence(values: list[Any] | tuple[Any, ...], move: Move) -> Any:
    moved = [move(value) for value in values]
    return type(values)(*moved) if hasattr(values, "_fields") else type(values)(moved)


def _mapping(values: Mapping[Any, Any], move: Move) -> Any:
    moved = {key: move(value) for key, value in values.items()}
    if type(values) is dict:
        return moved
    if isinstance(values, MutableMapping):  # a copy keeps attributes besides the items
        clone = copy.copy(values)
        clone.update(moved)
        return clone
    try:
        return type(values)(moved)  # type: ignore[call-arg]
    except TypeError:  # its constructor takes other arguments
        return moved


def _instance(value: Any, move: Move) -> Any:
    clone = copy.copy(value)
    for field in fields(value):
        if hasattr(value, field.name):
            object.__setattr__(clone, field.name, move(getattr(value, field.name)))  # it may be frozen
    return clone
