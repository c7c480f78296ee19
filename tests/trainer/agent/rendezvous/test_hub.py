"""What authenticated nodes may send, and its effect on the others: each over a real connection."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kittrain.agent.rendezvous.messages import FROM_NODES
from tests.trainer.agent.rendezvous.hub_clients import (
    HELLO,
    JOIN,
    HubClient,
    HubThread,
    form_round,
    forms_rounds,
    register,
)

ENDING = {"outcome": "fatal", "reason": "no GPU", "failure": None, "node": 0, "note": ""}
STATUS = {
    "rank": 0, "step": 1, "phase": 4, "stalled_seconds": 1.0, "has_stack": True, "frozen": False, "node": "",
    "location": {"wait": "", "line": ""},
}  # fmt: skip


@pytest.fixture
def hub() -> Iterator[HubThread]:
    with HubThread() as hub:
        yield hub


INVALID: list[dict[str, Any] | list[Any] | str] = [
    [],
    "Hello",
    {},
    {"type": "nothing"},
    {"type": ["Hello"]},
    {"type": "Join"},
    JOIN | {"port": "80"},
    JOIN | {"port": 1 << 16},
    JOIN | {"known": [{"number": 0, "members": "0-1"}]},
    JOIN | {"known": [{"number": 1, "members": "1-0"}]},
    JOIN | {"known": [{"number": 1, "members": "0-99999999999"}]},
    JOIN | {"place": -1},
    JOIN | {"gone": "0"},
    {"type": "Serves", "address": 3, "round": 1},
    JOIN | {"address": 3},
    JOIN | {"more": 1},
    {"type": "EndRound"},
    {"type": "EndRound", "lost": "yes"},
    {"type": "Set", "values": [["a", "b"]]},
    {"type": "Set", "values": {"a": 1}},
    {"type": "Get", "keys": "abc"},
    {"type": "Get", "keys": [{}]},
    {"type": "Heartbeat", "stalled": False, "frozen": False, "progress": {"x": [1, 2.0]}},
    {"type": "Heartbeat", "stalled": False, "frozen": False, "progress": {"0": [1]}},
    {"type": "Heartbeat", "stalled": False, "frozen": False, "progress": {"0": [1, float("nan")]}},
    {"type": "Heartbeat", "stalled": False, "frozen": False, "progress": 5},
    {"type": "RankStatus", "ranks": []},
    {"type": "StackReport", "ranks": [STATUS | {"phase": 99}]},
    {"type": "StackReport", "ranks": [{"rank": 0}]},
    {"type": "StackReport", "ranks": [STATUS | {"location": None}]},
    {"type": "Fail"},
    {"type": "Fail", "ending": {}},
    {"type": "Fail", "ending": ENDING | {"failure": {"rank": "zz"}}},
    {"type": "Round", "number": 1, "rank": 0, "size": 2, "address": "", "port": 1},
    HELLO,
]


@pytest.mark.parametrize("message", INVALID, ids=json.dumps)
def test_an_invalid_message_ends_only_its_connection(hub: HubThread, message: Any) -> None:
    with HubClient(hub.address) as other, HubClient(hub.address) as sender:
        register(other, 0)
        register(sender, 1)
        assert [reply["type"] for reply in form_round(other, sender)] == ["Round", "Round"]
        sender.send(message)
        assert sender.receive()["type"] == "Rejected"
        assert sender.read() == b""
        ended = other.receive()
        assert (ended["type"], ended["reason"]) == ("RoundEnded", "node 1, pod run-7-1 is lost")
    assert forms_rounds(hub)


def test_a_valid_stack_report_is_accepted(hub: HubThread) -> None:
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        form_round(register(zero, 0), register(one, 1))
        one.send({"type": "StackReport", "ranks": [STATUS]})
        one.send({"type": "Get", "keys": []})
        assert one.receive()["values"] == []


@pytest.mark.parametrize(
    "first",
    [
        HELLO | {"node": "zz"},
        HELLO | {"node": -1},
        HELLO | {"node": 2},
        HELLO | {"node": 1.0},
        HELLO | {"started_at": "old"},
        HELLO | {"started_at": float("inf")},
        HELLO | {"pod": None},
        JOIN,
        {"type": "Fail", "ending": ENDING},
        {"type": "Done"},
        {"type": "KeepAlive"},
    ],
    ids=json.dumps,
)
def test_a_first_message_other_than_a_valid_hello_is_rejected(hub: HubThread, first: dict[str, Any]) -> None:
    with HubClient(hub.address) as client:
        client.authenticate()
        client.send(first)
        client.send({"type": "Fail", "ending": ENDING})
        assert client.receive()["type"] == "Rejected"
        assert client.read() == b""
    assert forms_rounds(hub)


def fuzzed() -> st.SearchStrategy[Any]:
    """Messages with valid types and field names, and arbitrary values."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("0123ab", max_size=3), inner, max_size=3),
        max_leaves=5,
    )
    return st.one_of([
        st.fixed_dictionaries({"type": st.just(name), **{field.name: anything for field in fields(kind)}})  # type: ignore[arg-type]
        for name, kind in FROM_NODES.items()
    ])  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(fuzzed(), min_size=1, max_size=4), seed=st.integers(0, 1 << 16))
def test_the_hub_survives_any_message(hub: HubThread, messages: list[Any], seed: int) -> None:
    with HubClient(hub.address) as other, HubClient(hub.address) as sender:
        register(other, 0, started_at=seed)
        register(sender, 1, started_at=seed)
        if random.Random(seed).random() < 0.5:
            sender.send(JOIN)
            other.send(JOIN)
        for message in messages:
            sender.send(message)
        sender.send_text(b"\x00")
        sender.read()
    assert hub.thread.is_alive()


def test_two_nodes_form_a_round(hub: HubThread) -> None:
    assert forms_rounds(hub)


def test_a_node_that_has_waited_long_for_the_others_is_in_their_round() -> None:
    """It sends no heartbeats while it waits. So is a spare, which may wait for days."""
    with HubThread(heartbeat_timeout=2.0) as hub, HubClient(hub.address) as zero, HubClient(hub.address) as one:
        register(zero, 0).send(JOIN)
        time.sleep(2.5)
        register(one, 1).send(JOIN)
        assert (zero.receive()["type"], one.receive()["type"]) == ("Round", "Round")
        one.send({"type": "Set", "values": {"key": "one's"}})
        zero.send({"type": "Get", "keys": ["key"]})
        assert zero.receive().get("values") == ["one's"]


def test_messages_of_a_node_outside_the_round_are_ignored() -> None:
    with (
        HubThread() as hub,
        HubClient(hub.address) as zero,
        HubClient(hub.address) as one,
        HubClient(hub.address) as late,
    ):
        form_round(register(zero, 0), register(one, 1))
        register(late, 1, started_at=9.0)  # node 1's next agent, which has not joined
        assert zero.receive()["type"] == "RoundEnded"
        late.send({"type": "Set", "values": {"key": "late"}})  # in a round that it is not in
        late.send({"type": "Done"})
        late.send({"type": "Heartbeat", "stalled": True, "frozen": True, "progress": {"0": [1, 1.0]}})
        assert [reply["type"] for reply in form_round(zero, late)] == ["Round", "Round"]
        zero.send({"type": "Get", "keys": ["key"]})
        zero.send({"type": "Set", "values": {"key": "zero's"}})
        assert zero.receive()["values"] == ["zero's"]


def test_values_and_requests_end_with_their_round(hub: HubThread) -> None:
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        form_round(register(zero, 0), register(one, 1))
        one.send({"type": "Set", "values": {"other": "old"}})
        zero.send({"type": "Get", "keys": ["key"]})
        zero.send({"type": "EndRound", "lost": False})
        assert (zero.receive()["type"], one.receive()["type"]) == ("RoundEnded", "RoundEnded")
        assert [reply["type"] for reply in form_round(zero, one)] == ["Round", "Round"]
        one.send({"type": "Set", "values": {"key": "new"}})
        one.send({"type": "Get", "keys": ["key"]})
        assert one.receive()["type"] == "Values"
        zero.send({"type": "Get", "keys": []})
        assert zero.receive()["values"] == [], "not the reply to the last round's request"
        one.send({"type": "Set", "values": {"other": "new"}})
        one.send({"type": "Get", "keys": ["other"]})
        assert one.receive()["values"] == ["new"]


def test_a_key_is_set_once_and_can_be_requested_before_or_after(hub: HubThread) -> None:
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        form_round(register(zero, 0), register(one, 1))
        zero.send({"type": "Get", "keys": ["a", "b", "a"]})
        one.send({"type": "Set", "values": {"a": "1"}})
        one.send({"type": "Set", "values": {"a": "2", "b": "3"}})
        assert zero.receive()["values"] == ["1", "3", "1"]
        one.send({"type": "Get", "keys": ["b"]})
        assert one.receive()["values"] == ["3"]


def test_a_node_can_only_report_its_own_failure(hub: HubThread) -> None:
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        register(zero, 0)
        zero.send(JOIN)
        register(one, 1).send({"type": "Fail", "ending": ENDING | {"node": 0}})
        assert zero.receive() == {"type": "JobFailed", "ending": ENDING | {"node": 1}}
