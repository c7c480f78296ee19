"""Trees of a state: split into tensors and a rest, and joined again."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.snapshots.files import tree

KEYS = st.text("abc", min_size=1, max_size=3) | st.integers(0, 9)
LEAVES = st.none() | st.booleans() | st.integers() | st.text("xyz") | st.builds(lambda: torch.rand(2))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@given(TREES)
def test_what_is_split_is_joined_to_the_same(given: Any) -> None:
    found = tree.split(given)
    assert not found.opaque
    assert equal(tree.join(found.tensors, found.rest), given)
    assert sorted(tree.tensor_names(found.rest)) == sorted(found.tensors)


def test_containers_of_the_rest_are_new_and_what_may_change_is_named() -> None:
    inner = OrderedDict(step=1)
    counted = Counter("aa")
    found = tree.split({"inner": inner, "counted": counted, "weights": [torch.ones(1)]})
    inner["step"] = 2
    assert found.rest == {"inner": {"step": 1}, "counted": counted, "weights": ["tensor/weights/0"]}
    assert found.opaque == [("counted", counted)]
    assert found.opaque[0][1] is counted
    assert list(found.tensors) == ["weights/0"]
