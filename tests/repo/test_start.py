"""Modules that a command imports: late imports keep the start of the command line fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kitctl.targets.cluster.apiserver import ApiServer

HEAVY = {"torch", "kubernetes", "jinja2", "kittrain"}
PROBE = """
import atexit, sys
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
from kitctl.__main__ import main
sys.exit(main())
"""

COLLECTIONS = """
import atexit, gc, sys
found = []
atexit.register(lambda: print(len(found), gc.get_freeze_count(), file=sys.stderr))
from kitctl.__main__ import main
gc.callbacks.append(lambda phase, info: found.append(phase))
sys.exit(main())
"""


def imported_by(*arguments: str) -> set[str]:
    """Every module that ``kitctl ARGUMENTS`` has imported when it ends."""
    command = [sys.executable, "-c", PROBE, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    modules = imported_by(*arguments)
    assert "click" in modules
    assert not modules & HEAVY


def test_help_of_the_group_imports_no_command_and_no_spec() -> None:
    modules = imported_by("--help")
    assert not modules & {"msgspec", "yaml", "kitctl.spec.job_spec", "kitctl.cli.commands.submit"}


def test_render_imports_neither_torch_nor_kubernetes() -> None:
    modules = imported_by("render", "--nodes", "2")
    assert "jinja2" in modules
    assert not modules & {"torch", "kubernetes", "kittrain"}


def test_a_status_of_a_cluster_imports_neither_all_of_its_client_nor_what_submits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        command = ["submit", "--name", "run", "--set", "snapshots.enabled=false", "--no-checks", "--workload", "toy"]
        subprocess.run([sys.executable, "-m", "kitctl", *command], check=True, capture_output=True)
        modules = imported_by("status", "run")
    assert {"urllib3", "kitctl.targets.cluster.read.job_facts"} <= modules
    assert not modules & (HEAVY | {"pydantic", "requests", "oauthlib", "websocket", "dateutil"})
    assert not modules & {"kitctl.cli.flags", "kitctl.spec.job_spec", "kitctl.code.sources"}
    rooms = ("kitctl.render", "kitctl.targets.cluster.submit", "kitctl.targets.cluster.checks")
    assert not [one for one in modules if one.startswith(rooms)]


def test_a_short_command_looks_for_no_garbage() -> None:
    command = [sys.executable, "-c", COLLECTIONS, "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    collections, frozen = map(int, done.stderr.split())
    assert collections == 0
    assert frozen > 10_000, "what the last collection would go through as Python ends"
