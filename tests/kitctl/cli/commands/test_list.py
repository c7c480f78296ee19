"""Listing jobs, with and without filters."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kitctl.cli.main import main
from kitctl.targets.local.folder import state_home
from tests.kitctl.localjobs import ended_job


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    ended_job("well")
    ended_job("ill", "Failed")
    ended_job("else", "Failed", namespace="team")


def listed(*words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["list", "-o", "name", *words]) == 0
    return sorted(capsys.readouterr().out.split())


def test_jobs_of_a_phase(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys=capsys) == ["ill", "well"]
    assert listed("--phase", "Failed", capsys=capsys) == ["ill"]
    assert listed("--phase", "succeeded", capsys=capsys) == ["well"]
    assert listed("--phase", "failed", "-A", capsys=capsys) == ["else", "ill"]
    assert listed("--phase", "Failed", "-n", "team", capsys=capsys) == ["else"]
    assert listed("--phase", "Running", capsys=capsys) == []
    main(["list", "--phase", "Failed", "-o", "json"])
    assert [job["name"] for job in json.loads(capsys.readouterr().out)["items"]] == ["ill"]


@pytest.mark.parametrize("damage", ['{"x": 1}', "", "{", '{"spec": {"snapshots": {"claim": "../.."}}}'])
def test_an_unreadable_job_does_not_hide_others(damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = state_home() / "jobs" / "default" / "ill" / "job.json"
    path.write_text(damage)
    assert main(["list", "-o", "name"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "well\n"
    assert f"warning: {path} cannot be read: " in shown.err
    assert main(["status", "ill"]) == 1
    assert f"error: {path} cannot be read: " in capsys.readouterr().err
    assert main(["delete", "ill"]) == 0, "an ended job can still be deleted"


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("status ", {"ill", "well"}),
        ("status w", {"well"}),
        ("logs -f i", {"ill"}),
        ("delete x", set()),
        ("status -n team ", {"else"}),
    ],
)
def test_a_shell_completes_the_names_of_jobs(typed: str, names: set[str]) -> None:
    words = f"kitctl {typed}"
    asked = {"_KITCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    command = [sys.executable, "-m", "kitctl"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert {line.removeprefix("plain,") for line in done.stdout.split()} == names
    assert not done.stderr
