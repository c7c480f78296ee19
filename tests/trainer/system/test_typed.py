"""Decoding gives a value of the declared type, or an error that shows the input."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitjob import typed
from kitjob.decoders import MalformedError


class Colour(IntEnum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    sizes: tuple[int, ...]
    colour: Colour = Colour.RED


@dataclass(frozen=True, kw_only=True)
class Whole:
    parts: list[Part]
    by_rank: Mapping[int, tuple[int, float]]
    small: dict[str, bytes]
    kind: Literal["a", "b"]
    problem: Part | OSError | None
    port: Annotated[int, lambda port: 0 < port < 65536]


parts = st.builds(
    Part, name=st.text(st.characters(codec="utf-8")), sizes=st.lists(st.integers(0, 9)).map(tuple),
    colour=st.sampled_from(Colour),
)  # fmt: skip
wholes = st.builds(
    Whole,
    parts=st.lists(parts),
    by_rank=st.dictionaries(st.integers(0, 10_000), st.tuples(st.integers(0, 1 << 40), st.floats(allow_nan=False))),
    small=st.dictionaries(st.text(st.characters(codec="utf-8")), st.binary()),
    kind=st.sampled_from(["a", "b"]),
    problem=st.none() | parts,
    port=st.integers(1, 65535),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(wholes)
def test_a_value_survives_a_round_trip(whole: Whole) -> None:
    assert typed.load(Whole, typed.dump(whole)) == whole


@given(st.binary() | anything.map(lambda value: json.dumps(value).encode()))
def test_any_input_is_of_the_declared_type_or_an_error(content: bytes) -> None:
    for kind in (Whole, Part, list[Part], dict[int, float], Part | OSError | None, Colour, bytes):
        with suppress(MalformedError):
            typed.dump(typed.load(kind, content))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, 1 << 70),
        (int, "1"),
        (bool, 1),
        (float, "nan"),
        (float, 10**400),
        (str, None),
        (str, "\ud800"),
        (bytes, "%"),
        (list[int], {"0": 1}),
        (tuple[int, float], [1]),
        (dict[int, int], {"-1": 1}),
        (dict[int, int], {"²": 1}),
        (dict[int, int], [1]),
        (Literal["a"], "b"),
        (Literal[1], True),
        (Colour, 3),
        (Colour, True),
        (Colour, [1]),
        (Part, {"name": "x"}),
        (Part, {"name": "x", "sizes": [1], "__class__": "os.system"}),
        (Part, ["x", [1]]),
        (OSError, {"error": 2}),
        (OSError, {"error": "x", "more": 1}),
        (Part | None, 0),
        (Annotated[int, lambda number: number > 0], 0),
    ],
)
def test_another_type_is_an_error(kind: Any, value: object) -> None:
    with pytest.raises(MalformedError, match="not "):
        typed.decode(kind, value)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"1" * 5000, b"\xff", pickle.dumps({"a": 1})])
def test_invalid_json_is_an_error(content: bytes) -> None:
    with pytest.raises(MalformedError, match="not JSON"):
        typed.load(dict[str, int], content)


def test_an_exception_is_its_text_and_errors_show_little_of_the_input() -> None:
    lost = typed.load(OSError, typed.dump(FileNotFoundError(2, "No such file", "a.bin")))
    assert (type(lost), str(lost)) == (OSError, "[Errno 2] No such file: 'a.bin'")
    with pytest.raises(MalformedError) as raised:
        typed.decode(int, "x" * 1_000_000)
    assert len(str(raised.value)) < 100


def test_nan_and_infinity_are_allowed() -> None:
    assert math.isnan(typed.load(dict[str, float], typed.dump({"loss": math.nan}))["loss"])


def test_invalid_text_is_replaced_and_unsupported_types_are_errors() -> None:
    assert typed.load(str, typed.dump("caf\udce9")) == "caf?"
    with pytest.raises(TypeError, match="set cannot be encoded"):
        typed.dump({"a": {1}})
    with pytest.raises(TypeError, match="cannot be decoded"):
        typed.load(set[int], b"[]")
