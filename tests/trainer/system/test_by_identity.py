"""Objects that are told apart by identity, whatever they say of themselves."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import pytest

from kittrain.system.by_identity import ByIdentity


@dataclass
class Equal:
    """Has no hash, and equals any other with the same number."""

    number: int = 1


class Loop:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_equal_objects_without_a_hash_are_two() -> None:
    one, other, kept = Equal(), Equal(), ByIdentity[str]()
    kept[one] = "one"
    assert one in kept
    assert other not in kept
    assert kept.setdefault(other, "other") == "other"
    assert kept.setdefault(one, "again") == "one"
    assert [each is one or each is other for each in kept] == [True, True]
    assert (kept.get(one), kept.pop(other), kept.pop(other), kept.get(other)) == ("one", "other", None, None)
    assert len(kept) == 1


def test_an_object_is_forgotten_with_its_end_and_its_number_may_come_again() -> None:
    kept = ByIdentity[int]()
    for number in range(100):
        one = Equal()
        assert one not in kept
        kept[one] = number
        del one
        assert not kept
    kept[Loop()] = 1
    gc.collect()
    assert not kept
    with pytest.raises(TypeError, match="weak reference"):
        kept[1] = 1
