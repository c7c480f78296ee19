"""Who may speak to the job: strangers at the hub's port, each with a real connection, and what they get."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kittrain.env import node_env
from kittrain.rendezvous import handshake, peers
from kittrain.rendezvous.handshake import ForgedError, Greeting, Key, Proof
from kittrain.rendezvous.hub_process import hosted
from kittrain.rendezvous.settings import Knobs
from tests.trainer.nodes import free_port
from tests.trainer.rendezvous.hub_clients import HELLO, JOIN, KEY, Served, Wire, works


@pytest.fixture
def hub() -> Iterator[Served]:
    with Served() as hub:
        yield hub


@pytest.mark.parametrize(
    "words",
    [
        b"{}\n",
        json.dumps(HELLO | {"run": KEY.run}).encode() + b"\n",
        json.dumps(JOIN).encode() + b"\n",
        b'{"nonce": "00", "mac": "00"}\n',
        b'{"nonce": 1, "mac": 2}\n',
        b'{"nonce": "\xc3\xa9", "mac": "\xc3\xa9"}\n',
        b"\n" * 1000,
        b"\xff" * 5000,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_stranger_learns_nothing(hub: Served, words: bytes) -> None:
    with Wire(hub.address) as stranger:
        stranger.send(words)
        assert stranger.read() == b""
    assert not hub.warnings
    assert works(hub)


STRANGERS = [Key(b"fedcba9876543210", KEY.run), Key(KEY.secret, "another"), Key(None, KEY.run)]
WARNING = "warning: 127.0.0.1 does not know this run's secret; it was not let in"


@pytest.mark.parametrize("key", STRANGERS)
def test_who_knows_the_runs_id_and_not_its_secret_does_not_believe_the_hub_and_that_is_told(
    hub: Served, key: Key
) -> None:
    with Wire(hub.address) as stranger, pytest.raises(ForgedError):
        stranger.prove(key)
    assert works(hub)
    assert hub.warnings == [WARNING]


@pytest.mark.parametrize("key", STRANGERS)
def test_who_knows_the_runs_id_and_not_its_secret_is_not_let_in_and_that_is_told(hub: Served, key: Key) -> None:
    with Wire(hub.address) as stranger:
        greeting = KEY.greet()
        answer = stranger.greet(greeting)
        _, session = key.answer(Greeting(nonce=answer.nonce, secret=True))
        for mac in (session.proof, answer.mac):  # one's own, and the hub's sent back
            stranger.send(handshake.line(Proof(mac=mac)) + session.seal(json.dumps(HELLO).encode()))
        assert stranger.read() == b""
    assert hub.warnings == [WARNING]
    assert works(hub)


@pytest.mark.parametrize("words", [b'{"mac": 1}\n', b'{"mac": "\xc3\xa9"}\n', b"{}\n", b"\n", b"x" * 5000])
def test_what_is_no_proof_is_not_answered(hub: Served, words: bytes) -> None:
    with Wire(hub.address) as stranger:
        stranger.greet(KEY.greet())
        stranger.send(words)
        assert stranger.read() == b""
    assert works(hub)


def test_what_was_said_on_another_connection_is_no_proof(hub: Served) -> None:
    greeting = KEY.greet()
    with Wire(hub.address) as member, Wire(hub.address) as stranger:
        stranger.greet(greeting)
        session = KEY.accept(greeting, member.greet(greeting))
        stranger.send(handshake.line(Proof(mac=session.proof)))
        assert stranger.read() == b""


def test_a_hub_that_does_not_know_the_secret_is_not_believed() -> None:
    greeting = KEY.greet()
    for key, problem in zip(STRANGERS, ("does not know", "does not know", "node 0 has no secret"), strict=True):
        answer, _ = key.answer(greeting)
        with pytest.raises(ForgedError, match=problem):
            KEY.accept(greeting, answer)


@pytest.mark.parametrize("forge", ["changed", "repeated", "unsigned", "reflected"])
def test_a_message_that_was_tampered_with_ends_the_connection(hub: Served, forge: str) -> None:
    with Wire(hub.address) as member:
        member.prove()
        assert member.session
        line = member.session.seal(json.dumps(HELLO).encode())
        match forge:
            case "changed":
                member.send(line.replace(b"run-7-1", b"run-7-2"))
            case "repeated":
                member.send(line + line)
            case "unsigned":
                member.send(json.dumps(HELLO).encode() + b"\n")
            case "reflected":
                member.say(HELLO | {"node": 9})
                member.send(member.readline())
        assert member.read() == b""
    assert works(hub)


def test_what_strangers_send_is_not_kept() -> None:
    node = node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}"})
    with hosted(node, Knobs(), secret=KEY.secret) as process, ExitStack() as stack:
        strangers = [stack.enter_context(Wire(("127.0.0.1", node.rendezvous_port))) for _ in range(8)]
        for stranger in strangers:
            stranger.greet(KEY.greet())  # it is up by now
        before = peak(process.pid)
        for stranger in strangers:
            stranger.send(b"x" * (8 << 20))  # and no end of line
        assert [stranger.read() for stranger in strangers] == [b""] * 8
        assert peak(process.pid) < before + (8 << 20)


def test_strangers_who_say_nothing_are_dropped(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PATIENCE", 0.5)
    with Wire(hub.address) as stranger, Wire(hub.address) as slow:
        slow.send(b"{")
        assert stranger.read() == slow.read() == b""
    assert works(hub)


def test_of_too_many_strangers_the_busiest_address_loses_its_oldest() -> None:
    with Served(strangers=8) as hub, ExitStack() as stack:
        alone = stack.enter_context(Wire(hub.address, source="127.0.0.2"))
        crowd = [stack.enter_context(Wire(hub.address)) for _ in range(20)]
        assert [stranger.read() for stranger in crowd[:13]] == [b""] * 13
        assert alone.prove().session
        assert crowd[-1].prove().session
    assert not hub.warnings


def test_many_nodes_may_come_at_once_from_one_address(hub: Served) -> None:
    count = 600
    with ExitStack() as stack:
        wires: list[Wire] = []
        threads = [
            threading.Thread(target=lambda: wires.append(stack.enter_context(Wire(hub.address)).prove()))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wires) == count


def test_the_secret_and_the_runs_id_are_in_no_list_of_processes() -> None:
    port = free_port()
    node = node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}", "PET_RDZV_ID": "run-of-nobodys"})
    with hosted(node, Knobs(), secret=b"nobody's business") as process:
        with Wire(("127.0.0.1", port)) as member:
            member.prove(Key(b"nobody's business", "run-of-nobodys"))  # it has read its orders by now
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"kittrain.rendezvous" in shown
    assert b"nobody" not in shown


def peak(pid: int) -> int:
    """Bytes of main memory that a process has held at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
