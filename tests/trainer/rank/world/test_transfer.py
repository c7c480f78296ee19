"""Batches of any type keep their type, and their tensors are moved."""

from __future__ import annotations

import types
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data._utils.pin_memory import pin_memory

from kittrain.rank.world.transfer import to_device

META = torch.device("meta")


class Pair(NamedTuple):
    first: Any
    second: Any


class Encoding(UserDict[str, Any]):
    """As transformers' BatchEncoding: a mapping with an attribute, which moves itself and returns itself."""

    def __init__(self, data: Mapping[str, Any], kind: str = "fast") -> None:
        super().__init__(data)
        self.kind = kind

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Encoding:
        self.data = {key: value.to(device, non_blocking=non_blocking) for key, value in self.data.items()}
        return self


class Features(UserDict[str, Any]):
    """A mapping with an attribute, and without ``to``."""

    def __init__(self, data: Mapping[str, Any] = types.MappingProxyType({}), *, kind: str = "slow") -> None:
        super().__init__(data)
        self.kind = kind


class Fixed(Mapping[str, Any]):
    """An immutable mapping whose constructor takes a key and a value."""

    def __init__(self, key: str, value: Any) -> None:
        self._items = {key: value}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True)
class Sentences:
    words: Tensor
    names: list[str]
    inner: dict[str, Tensor]
    length: int = field(init=False, default=3)


class Graph:
    """Moves itself in place, and returns nothing."""

    def __init__(self) -> None:
        self.edges = torch.zeros(2)

    def to(self, device: torch.device) -> None:
        self.edges = self.edges.to(device)


def tensors(value: Any) -> list[Tensor]:
    """All tensors in a nested value."""
    match value:
        case Tensor():
            return [value]
        case PackedSequence():
            return [value.data]
        case Mapping():
            return [one for key in value for one in tensors(value[key])]
        case list() | tuple():
            return [one for part in value for one in tensors(part)]
        case Sentences() | Graph():
            return [one for part in vars(value).values() for one in tensors(part)]
        case _:
            return []


def one() -> Tensor:
    return torch.zeros(1)


CASES = {
    "tensor": one(),
    "nested": {"a": [one(), (one(), "text")], "b": None},
    "named tuple": Pair(one(), Pair([one()], 3)),
    "BatchEncoding": Encoding({"ids": one(), "mask": one()}),
    "UserDict": Features({"ids": one()}, kind="slower"),
    "defaultdict": defaultdict(list, a=[one()]),
    "OrderedDict": OrderedDict(b=one(), a=one()),
    "mappingproxy": types.MappingProxyType({"a": one()}),
    "dataclass": Sentences(one(), ["a"], {"x": one()}),
    "packed": pack_sequence([torch.zeros(2, 1), torch.zeros(1, 1)]),
    "own": [Graph()],
}


@pytest.mark.parametrize("name", CASES)
def test_tensors_are_moved_and_the_type_is_kept(name: str) -> None:
    moved = to_device(CASES[name], META)
    assert type(moved) is type(CASES[name])
    assert tensors(moved)
    assert {tensor.device for tensor in tensors(moved)} == {META}


def test_other_values_are_unchanged() -> None:
    moved = to_device({"text": "a", "number": 1.5, "type": Tensor, "made": Sentences, "set": {1}}, META)
    assert moved == {"text": "a", "number": 1.5, "type": Tensor, "made": Sentences, "set": {1}}
    assert to_device(Features({"ids": one()}, kind="slower"), META).kind == "slower"
    assert to_device(Sentences(one(), ["a"], {}), META).length == 3
    assert list(to_device(OrderedDict(b=one(), a=one()), META)) == ["b", "a"]
    assert to_device(defaultdict(list, a=one()), META)["new"] == []


def test_the_original_batch_is_unchanged() -> None:
    batch = {"a": one(), "b": Features({"x": one()}), "c": Sentences(one(), [], {})}
    to_device(batch, META)
    assert {tensor.device.type for tensor in tensors(batch)} == {"cpu"}


def test_a_mapping_with_another_constructor_becomes_a_dict() -> None:
    moved = to_device(Fixed("a", one()), META)
    assert isinstance(moved, dict)
    assert moved["a"].device == META


def test_an_error_of_a_move_is_raised() -> None:
    class Broken:
        def to(self, device: torch.device, *, non_blocking: bool) -> None:
            raise RuntimeError(f"cannot move to {device} ({non_blocking})")

    with pytest.raises(RuntimeError, match="cannot move to meta"):
        to_device([Broken()], META)


@pytest.mark.parametrize("name", CASES)
def test_batches_can_be_pinned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader pins batches before they are moved to a GPU; pinning is a no-op here."""
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor, *_: tensor)
    assert tensors(pin_memory(CASES[name]))
