"""Authentication at the hub's port: unauthenticated clients over real connections, and what they can achieve."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kittrain.agent.rendezvous import handshake, peers
from kittrain.agent.rendezvous.handshake import AuthenticationError, Greeting, Introduction, Key, Proof
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import node_env
from kittrain.system import link_watch
from kittrain.system.link_watch import ANSWERS
from tests.trainer.agent.rendezvous.hub_clients import (
    HELLO,
    JOIN,
    KEY,
    HubClient,
    HubThread,
    form_round,
    forms_rounds,
    register,
)
from tests.trainer.nodes import free_port


@pytest.fixture
def hub() -> Iterator[HubThread]:
    with HubThread() as hub:
        yield hub


@pytest.mark.parametrize(
    "data",
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
def test_a_client_without_a_greeting_gets_no_answer(hub: HubThread, data: bytes) -> None:
    with HubClient(hub.address) as client:
        client.write(data)
        assert client.read() == b""
    assert not hub.warnings
    assert forms_rounds(hub)


def test_empty_lines_of_a_node_keep_its_connection_alive_and_say_nothing_else(hub: HubThread) -> None:
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        for index, client in enumerate((zero, one)):
            register(client, index).write(b"\n\n")
        assert [message["type"] for message in form_round(zero, one)] == ["Round", "Round"]


@pytest.mark.parametrize("answers", [False, True])
def test_a_silent_connection_ends_unless_its_machine_answers(
    hub: HubThread, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Nothing listens at the port that the nodes name, so that this machine refuses."""
    with HubClient(hub.address) as zero, HubClient(hub.address) as one:
        register(zero, 0).send(JOIN | {"port": 4712})
        register(one, 1).send(JOIN)
        assert (zero.receive()["type"], one.receive()["type"]) == ("Round", "Round")
        monkeypatch.setattr(link_watch, "ANSWERS", ANSWERS if answers else frozenset())
        monkeypatch.setattr(link_watch.LinkWatch, "silence", lambda watch, _: 10.0 if watch.port == 4711 else 0.0)
        if answers:
            time.sleep(2.0)
            one.send({"type": "Set", "values": {"key": "still here"}})
            zero.send({"type": "Get", "keys": ["key"]})
            assert zero.receive()["values"] == ["still here"]
        else:
            assert one.read().strip() == b""
            assert zero.receive()["reason"] == "node 1, pod run-7-1 is lost: its machine has not answered for 3 s"


WRONG_KEYS = [Key(b"fedcba9876543210", KEY.run), Key(KEY.secret, "another"), Key(None, KEY.run)]
WARNING = "warning: 127.0.0.1 did not prove that it knows this run's secret; its connection was closed"


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_a_node_with_another_key_rejects_the_hub_and_a_warning_is_logged(hub: HubThread, key: Key) -> None:
    with HubClient(hub.address) as client, pytest.raises(AuthenticationError):
        client.authenticate(key)
    assert forms_rounds(hub)
    assert hub.warnings == [WARNING]


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_the_hub_rejects_a_node_with_another_key_and_a_warning_is_logged(hub: HubThread, key: Key) -> None:
    with HubClient(hub.address) as client:
        greeting = KEY.greet()
        answer = client.greet(greeting)
        _, session = key.answer(Greeting(nonce=answer.nonce, secret=True), answer.hub)
        for mac in (session.proof, answer.mac):  # its own, and the hub's reflected
            client.write(handshake.line(Proof(mac=mac)) + session.sign(json.dumps(HELLO).encode()))
        assert client.read() == b""
    assert hub.warnings == [WARNING]
    assert forms_rounds(hub)


@pytest.mark.parametrize("data", [b'{"mac": 1}\n', b'{"mac": "\xc3\xa9"}\n', b"{}\n", b"\n", b"x" * 5000])
def test_an_invalid_proof_gets_no_answer(hub: HubThread, data: bytes) -> None:
    with HubClient(hub.address) as client:
        client.greet(KEY.greet())
        client.write(data)
        assert client.read() == b""
    assert forms_rounds(hub)


def test_a_proof_of_another_connection_is_rejected(hub: HubThread) -> None:
    greeting = KEY.greet()
    with HubClient(hub.address) as member, HubClient(hub.address) as attacker:
        attacker.greet(greeting)
        session = KEY.accept(greeting, member.greet(greeting))
        attacker.write(handshake.line(Proof(mac=session.proof)))
        assert attacker.read() == b""


def test_a_hub_with_another_key_is_rejected() -> None:
    greeting = KEY.greet()
    for key, problem in zip(WRONG_KEYS, ("does not know", "does not know", "node 0 has no secret"), strict=True):
        answer, _ = key.answer(greeting, Introduction())
        with pytest.raises(AuthenticationError, match=problem):
            KEY.accept(greeting, answer)


@pytest.mark.parametrize("forgery", ["changed", "repeated", "unsigned", "reflected"])
def test_a_forged_message_ends_the_connection(hub: HubThread, forgery: str) -> None:
    with HubClient(hub.address) as member:
        member.authenticate()
        assert member.session
        line = member.session.sign(json.dumps(HELLO).encode())
        match forgery:
            case "changed":
                member.write(line.replace(b"run-7-1", b"run-7-2"))
            case "repeated":
                member.write(line + line)
            case "unsigned":
                member.write(json.dumps(HELLO).encode() + b"\n")
            case "reflected":
                member.send(HELLO | {"node": 9})
                member.write(member.readline())
        assert member.read() == b""
    assert forms_rounds(hub)


def test_data_of_unauthenticated_clients_is_not_buffered() -> None:
    node = node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}"})
    with hub_process(node, RendezvousSettings(), secret=KEY.secret) as process, ExitStack() as stack:
        clients = [stack.enter_context(HubClient(("127.0.0.1", node.run.rendezvous_port))) for _ in range(8)]
        for client in clients:
            client.greet(KEY.greet())  # the hub is up now
        before = peak_memory(process.pid)
        for client in clients:
            client.write(b"x" * (8 << 20))  # without a newline
        assert [client.read() for client in clients] == [b""] * 8
        assert peak_memory(process.pid) < before + (8 << 20)


def test_clients_that_do_not_complete_the_handshake_are_dropped(
    hub: HubThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "HANDSHAKE_TIMEOUT", 0.5)
    with HubClient(hub.address) as silent, HubClient(hub.address) as slow:
        slow.write(b"{")
        assert silent.read() == slow.read() == b""
    assert forms_rounds(hub)


def test_too_many_unauthenticated_clients_close_the_oldest_of_the_busiest_address() -> None:
    with HubThread(max_unauthenticated=8) as hub, ExitStack() as stack:
        alone = stack.enter_context(HubClient(hub.address, source="127.0.0.2"))
        crowd = [stack.enter_context(HubClient(hub.address)) for _ in range(20)]
        assert [client.read() for client in crowd[:13]] == [b""] * 13
        assert alone.authenticate().session
        assert crowd[-1].authenticate().session
    assert not hub.warnings


def test_many_nodes_may_connect_at_once_from_one_address(hub: HubThread) -> None:
    count = 600
    with ExitStack() as stack:
        clients: list[HubClient] = []
        threads = [
            threading.Thread(target=lambda: clients.append(stack.enter_context(HubClient(hub.address)).authenticate()))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(clients) == count


def test_the_secret_and_the_run_id_are_not_visible_in_the_process_list() -> None:
    port = free_port()
    node = node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}", "PET_RDZV_ID": "hidden-run-id"})
    with hub_process(node, RendezvousSettings(), secret=b"a hidden secret!!") as process:
        with HubClient(("127.0.0.1", port)) as member:
            member.authenticate(Key(b"a hidden secret!!", "hidden-run-id"))  # it has read its configuration by now
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"kittrain.agent.rendezvous" in shown
    assert b"hidden" not in shown


def peak_memory(pid: int) -> int:
    """A process's peak resident memory in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
