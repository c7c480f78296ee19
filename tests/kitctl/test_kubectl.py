"""``kubectl kit``: the same program, as a plugin of a real kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENTRY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """With the plugin in front of PATH, as pip installs it."""
    module, _, function = ENTRY["kubectl-kit"].partition(":")
    plugin = tmp_path / "kubectl-kit"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function} as run\nsys.exit(run())\n")
    plugin.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**os.environ, **path}


def kubectl(*words: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["kubectl", *words], env=environ, capture_output=True, text=True, check=False)


def test_kubectl_finds_the_plugin(environ: dict[str, str]) -> None:
    listed = kubectl("plugin", "list", environ=environ)
    assert "/kubectl-kit\n" in listed.stdout
    assert "kubectl-kit" not in listed.stderr, "it warns of what it cannot run"


def test_usage_says_kubectl_kit(environ: dict[str, str]) -> None:
    shown = kubectl("kit", "submit", "--help", environ=environ)
    assert shown.stdout.startswith("Usage: kubectl kit submit [OPTIONS]")
    wrong = kubectl("kit", "status", "--nope", environ=environ)
    assert wrong.returncode == 2
    assert "see kubectl kit status --help" in wrong.stderr


def test_it_is_the_same_program(environ: dict[str, str]) -> None:
    assert ENTRY["kubectl-kit"] == ENTRY["kitctl"]
    arguments = ("render", "--nodes", "2", "-o", "name")
    ours = subprocess.run([sys.executable, "-m", "kitctl", *arguments], capture_output=True, text=True, check=True)
    assert kubectl("kit", *arguments, environ=environ).stdout == ours.stdout
