"""Moves a batch of any type to a device, on a GPU also behind the work that is queued there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

Move = Callable[[Any], Any]


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device.

    The first rule that matches applies, recursively in containers:

    - Objects with a method ``to`` (tensors, packed sequences, ``transformers.BatchEncoding``) are moved by it.
    - Lists, tuples and named tuples, mappings of any type, and dataclass instances become new ones of the same type.
    - Anything else is returned unchanged.
    """
    if type(batch) is Tensor and batch.device == device:
        return batch
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


def copy_behind(batch: Any, device: torch.device) -> Any:
    """A batch that is copied to a GPU on a stream of its own, so that the copy does not wait for the current stream.

    The current stream waits for the copy. It is meant for page-locked memory. A batch that holds anything but plain
    tensors, numbers and text in lists, tuples and dicts is returned unchanged, and so is one for another device.
    """
    if device.type != "cuda" or not _is_plain(batch):
        return batch
    current, stream = torch.cuda.current_stream(device), _copy_stream(device)
    with torch.cuda.stream(stream):
        copied = to_device(batch, device)
    current.wait_stream(stream)
    for tensor in _tensors(copied):
        tensor.record_stream(current)  # its memory is not used again before the current stream has used it
    return copied


@lru_cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _is_plain(batch: Any) -> bool:
    """Whether the tensors of a batch can be found: exact types only, as others may hold tensors elsewhere."""
    match batch:
        case list() | tuple() if type(batch) in {list, tuple}:
            return all(map(_is_plain, batch))
        case dict() if type(batch) is dict:
            return all(map(_is_plain, batch.values()))
        case _:
            return batch is None or type(batch) in {Tensor, str, bytes, int, float, bool}


def _tensors(batch: Any) -> Iterator[Tensor]:
    """The tensors of a plain batch."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, list | tuple | dict):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(part)


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
