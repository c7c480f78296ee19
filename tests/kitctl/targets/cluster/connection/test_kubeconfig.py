"""Messages about a wrong kubeconfig, context or API server address. Needs no cluster."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kitctl.cli.main import main
from kitctl.targets.cluster.connection import transport
from kitctl.targets.cluster.connection.kubeconfig import connection

CONTEXTS = {"one": "default", "two": "team"}


@pytest.fixture
def closed() -> Iterator[int]:
    """A port on which nothing listens, and which no other process gets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def kubeconfig(tmp_path: Path, closed: int) -> Path:
    """Two contexts of a cluster that does not exist."""
    clusters = [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{closed}"}}]
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}}
        for name, namespace in CONTEXTS.items()
    ]
    users = [{"name": "u", "user": {"token": "secret-token"}}]
    known = {"clusters": clusters, "contexts": contexts, "users": users, "current-context": "one"}
    path = tmp_path / "config"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | known))
    return path


def test_a_server_that_accepts_but_does_not_answer(kubeconfig: Path, closed: int, monkeypatch, capsys) -> None:
    assert transport.CONNECT_SECONDS < 10, "the user waits this long"
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        kubeconfig.write_text(kubeconfig.read_text().replace(f":{closed}", f":{port}"))
        assert main(["status", "run", "--kubeconfig", str(kubeconfig)]) == 1
    assert f"error: the cluster at https://127.0.0.1:{port} cannot be reached" in capsys.readouterr().err


COMMANDS = [
    ["list"],
    ["status", "run"],
    ["logs", "run"],
    ["delete", "run"],
    ["submit", "--name", "run"],
    ["diff", "--name", "run"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_server_that_does_not_answer(command: list[str], kubeconfig: Path, closed: int, capsys) -> None:
    assert main([command[0], "--kubeconfig", str(kubeconfig), *command[1:]]) == 1
    output = capsys.readouterr()
    assert f"error: the cluster at https://127.0.0.1:{closed} cannot be reached" in output.err
    assert "fix: check network, VPN and context" in output.err
    assert "Traceback" not in output.err
    assert "secret-token" not in output.err
    assert output.out == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_unknown_context_is_an_error_that_lists_the_known_ones(command: list[str], kubeconfig: Path, capsys) -> None:
    flags = ["--kubeconfig", str(kubeconfig), "--context", "three"]
    assert main([command[0], *flags, *command[1:]]) == 2
    stderr = capsys.readouterr().err
    assert "three" in stderr
    assert "fix: choose one of its contexts with --context: one, two" in stderr


@pytest.fixture
def without_current(kubeconfig: Path) -> Path:
    kubeconfig.write_text(json.dumps(json.loads(kubeconfig.read_text()) | {"current-context": ""}))
    return kubeconfig


def test_without_a_current_context_the_contexts_are_listed(without_current: Path, capsys) -> None:
    assert main(["list", "--kubeconfig", str(without_current)]) == 2
    assert capsys.readouterr().err == (
        "error: the kubeconfig has no current context\n"
        "fix: choose one with --context, or kubectl config use-context NAME: one, two\n"
    )


def test_without_a_current_context_one_that_is_named_has_its_namespace(without_current: Path) -> None:
    from kitctl.api.client import Client  # noqa: PLC0415 - with the client, a quarter of a second

    assert Client(context="two", kubeconfig=without_current).namespace == "team"


# fmt: off
BROKEN = {
    "empty": "",
    "nothing in it": "apiVersion: v1\nkind: Config\n",
    "a context without its cluster": json.dumps({
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}], "clusters": [], "users": [],
    }),
}
NOT_A_KUBECONFIG = {"not YAML": "clusters: [\n}", "a list": "[]"}
# fmt: on


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_kubeconfig(text: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert main(["list", "--kubeconfig", str(path)]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: the kubeconfig cannot be used: ")
    assert "fix: " in stderr


@pytest.mark.parametrize("text", NOT_A_KUBECONFIG.values(), ids=NOT_A_KUBECONFIG.keys())
def test_a_file_that_is_not_a_kubeconfig(text: str, tmp_path: Path, capsys) -> None:
    test_a_broken_kubeconfig(text, tmp_path, capsys)


def test_a_missing_kubeconfig(tmp_path: Path, capsys) -> None:
    assert main(["list", "--kubeconfig", str(tmp_path / "absent")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: the kubeconfig is a file that does not exist: {tmp_path}/absent\nfix: correct that")


def test_the_namespace_comes_from_the_context(kubeconfig: Path) -> None:
    from kitctl.api.client import Client  # noqa: PLC0415 - with the client, a quarter of a second

    for context, namespace in [(None, "default"), *CONTEXTS.items()]:
        assert Client(context=context, kubeconfig=kubeconfig).namespace == namespace


def test_who_a_user_acts_as_is_sent_with_each_request(kubeconfig: Path) -> None:
    known = json.loads(kubeconfig.read_text())
    extra = {"example.com/reason": ["on call", "ticket 7"]}
    known["users"][0]["user"] |= {"as": "ann", "as-uid": "7", "as-groups": ["team", "night"], "as-user-extra": extra}
    kubeconfig.write_text(json.dumps(known))
    assert connection("one", kubeconfig).identity() == [
        ("authorization", "Bearer secret-token"),
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "team"),
        ("Impersonate-Group", "night"),
        ("Impersonate-Extra-example.com%2Freason", "on call"),
        ("Impersonate-Extra-example.com%2Freason", "ticket 7"),
    ]


def test_nobody_acts_as_another_one_unasked(kubeconfig: Path) -> None:
    assert connection(None, kubeconfig).identity() == [("authorization", "Bearer secret-token")]
