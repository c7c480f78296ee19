"""Splits nested dicts, lists and tuples into tensors by name and the rest without tensors, and joins them again.

It also finds values that could not be loaded again.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
Structure = Mapping[str, tuple[torch.Size, torch.dtype]]  # of tensors by name: the whole tensor's shape, and its type
PLACEHOLDER: Final = "tensor/"  # a string in the rest with this prefix stands for a tensor
PLAIN: Final = frozenset({str, int, float, bool, type(None)})
MAPPINGS: Final = frozenset({dict, OrderedDict})
CONTAINERS: Final = MAPPINGS | {list, tuple}


class Split(NamedTuple):
    """What ``split`` has found.

    Attributes:
        tensors: by path.
        rest: the tree with a placeholder for each tensor; its containers are new.
        opaque: leaves of the rest, with their paths, that are mutable or that ``load`` may refuse to read.
    """

    tensors: Tensors
    rest: Any
    opaque: list[tuple[str, Any]]


def split(tree: Any) -> Split:
    """Separate the tensors from nested dicts, lists and tuples; training waits for it, so it is one walk."""
    tensors: Tensors = {}
    opaque: list[tuple[str, Any]] = []

    def extract(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return PLACEHOLDER + path
        if type(value) not in PLAIN:
            opaque.append((path, value))
        return value

    return Split(tensors, _map(tree, extract), opaque)


def join(tensors: Mapping[str, Any], rest: Any) -> Any:
    """Replace the placeholders in the rest by the tensors, or by other values of these names."""
    return _map(rest, lambda value, _: tensors[value.removeprefix(PLACEHOLDER)] if _is_placeholder(value) else value)


def tensor_names(rest: Any) -> list[str]:
    """The names of the tensors that a rest has placeholders for."""
    return [value.removeprefix(PLACEHOLDER) for _, value in _leaves(rest) if _is_placeholder(value)]


def unloadable(leaves: Iterable[tuple[str, Any]]) -> tuple[str, Any, Exception] | None:
    """The first of a rest's ``opaque`` leaves that ``load`` could not read, with the error; None if all can be read."""
    for path, value in leaves:
        try:
            load(dump(value))
        except Exception as error:  # noqa: BLE001  a class may raise anything when it is pickled
            return path, value, error
    return None


def dump(value: Any) -> bytes:
    """Serialize small values that are not tensors of the state, in torch's file format."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def load(content: bytes) -> Any:
    """Deserialize verified bytes into main memory, without executing anything in them."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)  # noqa: TID251  verified by the caller


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(PLACEHOLDER)


def _map(tree: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """The tree with each leaf replaced; containers of other types count as leaves."""
    kind = type(tree)
    if kind not in CONTAINERS:
        return leaf(tree, path)
    within = f"{path}/" if path else ""
    if kind in MAPPINGS:
        return {key: _map(value, leaf, f"{within}{key}") for key, value in tree.items()}
    return kind([_map(value, leaf, f"{within}{index}") for index, value in enumerate(tree)])


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """All leaves, each with its path."""
    found: list[tuple[str, Any]] = []
    _map(tree, lambda value, path: found.append((path, value)))
    return found
