"""What members of a run may say, and what that does to the others: each over a real connection."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kittrain.rendezvous.messages import NODES
from tests.trainer.rendezvous.hub_clients import HELLO, JOIN, Served, Wire, enter, formed, works

ENDING = {"outcome": "fatal", "reason": "no GPU", "failure": None, "node": 0}
ACCOUNT = {
    "rank": 0, "step": 1, "phase": 4, "still": 1.0, "answers": True, "frozen": False, "node": "",
    "place": {"wait": "", "line": ""},
}  # fmt: skip


@pytest.fixture
def hub() -> Iterator[Served]:
    with Served() as hub:
        yield hub


WRONG: list[dict[str, Any] | list[Any] | str] = [
    [],
    "hello",
    {},
    {"say": "nothing"},
    {"say": ["hello"]},
    {"say": "join"},
    JOIN | {"port": "80"},
    JOIN | {"port": 1 << 16},
    JOIN | {"round": -1},
    JOIN | {"round": True},
    JOIN | {"address": 3},
    JOIN | {"more": 1},
    {"say": "end"},
    {"say": "end", "lost": "yes"},
    {"say": "set", "values": [["a", "b"]]},
    {"say": "set", "values": {"a": 1}},
    {"say": "get", "keys": "abc"},
    {"say": "get", "keys": [{}]},
    {"say": "pulse", "stalled": False, "frozen": False, "tempo": {"x": [1, 2.0]}},
    {"say": "pulse", "stalled": False, "frozen": False, "tempo": {"0": [1]}},
    {"say": "pulse", "stalled": False, "frozen": False, "tempo": {"0": [1, float("nan")]}},
    {"say": "pulse", "stalled": False, "frozen": False, "tempo": 5},
    {"say": "account", "ranks": []},
    {"say": "accounts", "ranks": [ACCOUNT | {"phase": 99}]},
    {"say": "accounts", "ranks": [{"rank": 0}]},
    {"say": "accounts", "ranks": [ACCOUNT | {"place": None}]},
    {"say": "fail"},
    {"say": "fail", "ending": {}},
    {"say": "fail", "ending": ENDING | {"failure": {"rank": "zz"}}},
    {"say": "round", "number": 1, "rank": 0, "size": 2, "address": "", "port": 1},
    HELLO,
]


@pytest.mark.parametrize("words", WRONG, ids=json.dumps)
def test_garbage_of_a_member_ends_its_connection_and_nothing_else(hub: Served, words: Any) -> None:
    with Wire(hub.address) as other, Wire(hub.address) as garbler:
        enter(other, 0)
        enter(garbler, 1)
        assert [told["say"] for told in formed(other, garbler)] == ["round", "round"]
        garbler.say(words)
        assert garbler.hear()["say"] == "refused"
        assert garbler.read() == b""
        over = other.hear()
        assert (over["say"], over["reason"]) == ("over", "node 1, pod run-7-1 is lost")
    assert works(hub)


@pytest.mark.parametrize(
    "hello",
    [
        HELLO | {"node": "zz"},
        HELLO | {"node": -1},
        HELLO | {"node": 2},
        HELLO | {"node": 1.0},
        HELLO | {"born": "old"},
        HELLO | {"born": float("inf")},
        HELLO | {"pod": None},
        JOIN,
        {"say": "fail", "ending": ENDING},
        {"say": "done"},
        {"say": "alive"},
    ],
    ids=json.dumps,
)
def test_who_does_not_say_which_node_of_the_job_it_is_cannot_take_part(hub: Served, hello: dict[str, Any]) -> None:
    with Wire(hub.address) as stranger:
        stranger.prove()
        stranger.say(hello)
        stranger.say({"say": "fail", "ending": ENDING})
        assert stranger.hear()["say"] == "refused"
        assert stranger.read() == b""
    assert works(hub)


def named() -> st.SearchStrategy[Any]:
    """Messages whose names and fields are known, and whose values may be anything."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("0123ab", max_size=3), inner, max_size=3),
        max_leaves=5,
    )
    return st.one_of([
        st.fixed_dictionaries({"say": st.just(name), **{field.name: anything for field in fields(kind)}})  # type: ignore[arg-type]
        for name, kind in NODES.items()
    ])  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(named(), min_size=1, max_size=4), seed=st.integers(0, 1 << 16))
def test_whatever_members_say_the_hub_goes_on(hub: Served, words: list[Any], seed: int) -> None:
    with Wire(hub.address) as other, Wire(hub.address) as garbler:
        enter(other, 0, born=seed)
        enter(garbler, 1, born=seed)
        if random.Random(seed).random() < 0.5:
            garbler.say(JOIN)
            other.say(JOIN)
        for one in words:
            garbler.say(one)
        garbler.say_text(b"\x00")
        garbler.read()
    assert hub.thread.is_alive()


def test_after_all_that_nodes_find_each_other(hub: Served) -> None:
    assert works(hub)


def test_who_is_not_of_the_round_does_not_speak_of_it() -> None:
    with (
        Served() as hub,
        Wire(hub.address) as zero,
        Wire(hub.address) as one,
        Wire(hub.address) as late,
    ):
        formed(enter(zero, 0), enter(one, 1))
        enter(late, 1, born=9.0)  # node 1's next agent, which has not joined
        assert zero.hear()["say"] == "over"
        late.say({"say": "set", "values": {"key": "late"}})  # of a round that it is not in
        late.say({"say": "done"})
        late.say({"say": "pulse", "stalled": True, "frozen": True, "tempo": {"0": [1, 1.0]}})
        assert [told["say"] for told in formed(zero, late)] == ["round", "round"]
        zero.say({"say": "get", "keys": ["key"]})
        zero.say({"say": "set", "values": {"key": "zero's"}})
        assert zero.hear() == {"say": "values", "values": ["zero's"]}


def test_questions_and_answers_end_with_their_round(hub: Served) -> None:
    with Wire(hub.address) as zero, Wire(hub.address) as one:
        formed(enter(zero, 0), enter(one, 1))
        one.say({"say": "set", "values": {"other": "old"}})
        zero.say({"say": "get", "keys": ["key"]})
        zero.say({"say": "end", "lost": False})
        assert (zero.hear()["say"], one.hear()["say"]) == ("over", "over")
        assert [told["say"] for told in formed(zero, one)] == ["round", "round"]
        one.say({"say": "set", "values": {"key": "new"}})
        one.say({"say": "get", "keys": ["key"]})
        assert one.hear()["say"] == "values"
        zero.say({"say": "get", "keys": []})
        assert zero.hear() == {"say": "values", "values": []}, "and not the answer to a question of the round before"
        one.say({"say": "set", "values": {"other": "new"}})
        one.say({"say": "get", "keys": ["other"]})
        assert one.hear()["values"] == ["new"]


def test_a_key_is_set_once_and_asked_for_before_or_after(hub: Served) -> None:
    with Wire(hub.address) as zero, Wire(hub.address) as one:
        formed(enter(zero, 0), enter(one, 1))
        zero.say({"say": "get", "keys": ["a", "b", "a"]})
        one.say({"say": "set", "values": {"a": "1"}})
        one.say({"say": "set", "values": {"a": "2", "b": "3"}})
        assert zero.hear()["values"] == ["1", "3", "1"]
        one.say({"say": "get", "keys": ["b"]})
        assert one.hear()["values"] == ["3"]


def test_a_node_speaks_for_itself_when_it_fails(hub: Served) -> None:
    with Wire(hub.address) as zero, Wire(hub.address) as one:
        enter(zero, 0)
        zero.say(JOIN)
        enter(one, 1).say({"say": "fail", "ending": ENDING | {"node": 0}})
        assert zero.hear() == {"say": "failed", "ending": ENDING | {"node": 1}}
