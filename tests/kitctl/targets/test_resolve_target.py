"""Which target a command has: a kubeconfig that is named and missing is a mistake, and never means this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitctl.api.client import Client
from kitctl.base.errors import UsageError
from kitctl.cli.main import main
from kitctl.targets import TargetOptions, resolve_target

OPTIONS = TargetOptions(warn=print)
COMMANDS = (["list"], ["status", "run"], ["delete", "run", "-y"], ["submit", "--name", "run", "--workload", "toy"])


def test_without_a_kubeconfig_it_is_this_machine(tmp_path: Path) -> None:
    assert resolve_target(OPTIONS, {"HOME": str(tmp_path)}).name == "local"
    assert resolve_target(OPTIONS, {"HOME": str(tmp_path), "KUBECONFIG": ""}).name == "local"
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    assert resolve_target(OPTIONS, {"HOME": str(tmp_path), "KUBECONFIG": ""}).name == "cluster"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_missing_kubeconfig_is_an_error(command: list[str], monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/typo/kubeconfig")
    assert main(command) == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: KUBECONFIG names a file that does not exist: /etc/typo/kubeconfig\n")
    assert "fix: correct that path, unset it, or use --target local" in output.err
    assert output.out == ""


def test_a_missing_kubeconfig_does_not_matter_to_this_machine(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/typo/kubeconfig")
    assert main(["list", "--target", "local"]) == 0
    assert "no jobs in namespace" in capsys.readouterr().err
    assert main(["list", "--target", "local", "--kubeconfig", "/etc/typo/kubeconfig"]) == 0


def test_a_missing_kubeconfig_of_the_python_api(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"the kubeconfig is a file that does not exist: {tmp_path}/absent"):
        Client(kubeconfig=tmp_path / "absent")


def test_of_several_kubeconfigs_one_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
        "current-context": "one",
    }
    (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | known))
    monkeypatch.setenv("KUBECONFIG", f"/etc/typo/kubeconfig:{tmp_path}/config")
    assert Client().namespace == "team"
