"""Changes to the machine are announced, can be declined by a variable or a prompt, and are listed for the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.kind import host
from tests.cluster.kind.steps import StepError
from tools import system_changes


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(system_changes.VARIABLE, raising=False)
    monkeypatch.delenv("CI", raising=False)


def test_no_change_needs_no_announcement(capsys: pytest.CaptureFixture[str]) -> None:
    assert system_changes.allowed()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("value", "allowed"), [("1", False), ("yes", False), ("0", True), ("", True)])
def test_the_variable_declines(value: str, *, allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(system_changes.VARIABLE, value)
    assert system_changes.allowed("install the Debian package jq") is allowed


@pytest.mark.parametrize(("answer", "allowed"), [("", True), ("y", True), ("Yes", True), ("n", False), ("?", False)])
def test_a_user_at_a_terminal_is_asked(answer: str, *, allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_changes, "_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert system_changes.allowed("start a docker daemon") is allowed


def test_end_of_input_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(system_changes, "_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", end)
    assert not system_changes.allowed("start a docker daemon")


@pytest.fixture
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux with Go and root, and nothing else that the cluster needs."""
    monkeypatch.setattr(host, "STATE", tmp_path)
    monkeypatch.setattr(host, "has_go", lambda: True)
    monkeypatch.setattr(host, "is_root", lambda: True)
    monkeypatch.setattr(host, "_answers", lambda: False)
    monkeypatch.setattr(host, "missing_packages", lambda *programs: sorted({host.PACKAGES[name] for name in programs}))


@pytest.mark.usefixtures("_bare_machine")
def test_a_bare_machine_gets_packages_and_a_daemon() -> None:
    packages, daemon = host.planned_changes()
    assert packages == "install Debian packages (docker.io, iproute2, iptables, jq, runc, debootstrap)"
    assert daemon.startswith("start a docker daemon")
    assert host.obstacle() == ""


@pytest.mark.usefixtures("_bare_machine")
def test_declining_is_an_obstacle_that_names_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(system_changes.VARIABLE, "1")
    assert host.obstacle().startswith("KIT_NO_SYSTEM is set, and a cluster needs to install Debian packages (docker.io")
    monkeypatch.setattr(host, "run", lambda *command, **_: pytest.fail(f"ran {command}"))
    with pytest.raises(StepError, match="KIT_NO_SYSTEM is set, and jq not installed"):
        host.need("jq")


@pytest.mark.usefixtures("_bare_machine")
def test_declining_is_no_obstacle_if_docker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_answers", lambda: True)
    monkeypatch.setenv(system_changes.VARIABLE, "1")
    (tmp_path / "stamp").mkdir()
    (tmp_path / "stamp" / "node-pulled").touch()
    assert host.planned_changes() == []
    assert host.obstacle() == ""
