"""Nested dicts, lists and tuples with tensors in them: taken apart into tensors by name and a rest, and put together.

What cannot be read again later is found here, too.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
Structure = Mapping[str, tuple[torch.Size, torch.dtype]]  # of tensors by name: the whole tensor's shape, and its type
PLACE: Final = "tensor/"  # a text in the rest that begins so stands for a tensor
PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def split(tree: Any) -> tuple[Tensors, Any]:
    """Take the tensors out of nested dicts, lists and tuples; the rest names them where they were."""
    tensors: Tensors = {}

    def take(value: Any, path: str) -> Any:
        if not isinstance(value, Tensor):
            return value
        tensors[path] = value
        return PLACE + path

    return tensors, _walk(tree, take)


def join(tensors: Mapping[str, Any], rest: Any) -> Any:
    """Put the tensors back into the rest, or something else instead of each of them."""
    return _walk(rest, lambda value, _path: tensors[value.removeprefix(PLACE)] if _is_place(value) else value)


def places(rest: Any) -> list[str]:
    """The names of the tensors that belong into a rest."""
    return [value.removeprefix(PLACE) for _, value in _leaves(rest) if _is_place(value)]


def opaque(rest: Any) -> list[tuple[str, Any]]:
    """All of a rest that may still change, or that ``load`` may refuse to read again: where it is, and its value."""
    return [(path, value) for path, value in _leaves(rest) if type(value) not in PLAIN]


def unloadable(found: Iterable[tuple[str, Any]]) -> tuple[str, Any, Exception] | None:
    """The first of ``opaque`` that ``load`` could not read again, and why; None where all can be read."""
    for path, value in found:
        try:
            load(dump(value))
        except Exception as error:  # noqa: BLE001  whatever a class raises when it is pickled
            return path, value, error
    return None


def dump(value: Any) -> bytes:
    """Small things that are no tensors of the state, in torch's file format."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def load(content: bytes) -> Any:
    """Read verified bytes, without executing anything in them, into main memory."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)  # noqa: TID251  verified by the caller


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(PLACE)


def _walk(tree: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """The tree with each leaf exchanged; containers of other types count as leaves."""
    within = f"{path}/" if path else ""
    if type(tree) in {dict, OrderedDict}:
        return {key: _walk(value, leaf, f"{within}{key}") for key, value in tree.items()}
    if type(tree) in {list, tuple}:
        return type(tree)(_walk(value, leaf, f"{within}{index}") for index, value in enumerate(tree))
    return leaf(tree, path)


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """All leaves, each with its path."""
    found: list[tuple[str, Any]] = []
    _walk(tree, lambda value, path: found.append((path, value)))
    return found
