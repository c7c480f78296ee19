"""Nodes start without the fork server if it fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local import forking
from kitctl.targets.local.folder import NodeFolder
from kitctl.targets.local.records import SubmittedJob
from kitctl.targets.local.starting import Starter

ENV = {"PATH": "/usr/bin:/bin"}
MUTE = """echo '{"ready": true}'; read order; exec sleep 60"""
GONE = """echo '{"warm": true}'"""
NEVER_READY = "exec sleep 60"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "IMPORT_TIMEOUT", 0.5)
    monkeypatch.setattr(forking, "FORK_TIMEOUT", 0.5)


@pytest.mark.parametrize("server", [MUTE, GONE, NEVER_READY, "exit 1"])
def test_a_node_starts_cold_if_the_fork_server_does_not_respond(tmp_path: Path, server: str) -> None:
    python = tmp_path / "python.sh"
    python.write_text(f'#!/bin/sh\ncase "$*" in *kittrain.agent.forkserver*) {server} ;; *) echo cold "$@";; esac\n')
    python.chmod(0o755)
    job = SubmittedJob(spec=JobSpec(), run="run", created=0.0, folder=str(tmp_path), python=str(python), version="0")
    warnings: list[str] = []
    starter = Starter(job, warnings.append)
    while not starter.ready(ENV):
        time.sleep(0.01)

    node = NodeFolder(tmp_path, 0)
    starter.start(node, 1, restarts=0, env=ENV)
    while not node.exited(1):
        time.sleep(0.01)
    assert "cold -P -m kittrain.agent -- " in node.log(1).read_text()
    assert len(warnings) == 1
    assert "imports torch itself from now on" in warnings[0]

    starter.start(node, 2, restarts=0, env=ENV)
    assert len(warnings) == 1, "the server is not used again"
    starter.close()
