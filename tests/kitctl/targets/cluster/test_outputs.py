"""Outputs in a pod's working folder end with the pod, unless they are kept on the claim: the user is told which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kitctl.targets.cluster.clients import Kit

LOST = "/workspace of each pod, gone with the pod"
KEPT = "claim run-snapshots, outputs/<run>/node-<i>"


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "train.py").write_text("")
    return ("--name", "run", "--workdir", str(tmp_path))


def test_outputs_that_end_with_the_pods_are_named(kit: Kit, words: tuple[str, ...]) -> None:
    assert f"outputs of its nodes: {LOST}; --keep-outputs has them" in kit("submit", *words, "--", "train.py")
    assert LOST in kit("status", "run")
    assert f"its outputs are deleted: {LOST}" in kit("submit", *words, "--replace", "--resume", "--", "train.py")
    assert f"run: its outputs are deleted: {LOST}" in kit("delete", "run")


def test_outputs_on_the_claim_are_named_and_stay(kit: Kit, words: tuple[str, ...]) -> None:
    assert f"outputs of its nodes: {KEPT}\n" in kit("submit", *words, "--keep-outputs", "--", "train.py")
    assert KEPT in kit("status", "run")
    assert f"its outputs are on {KEPT}" in kit("delete", "run", "--outputs", "-y", exit_code=2)
    assert f"run: its outputs stay on {KEPT}" in kit("delete", "run")


def test_a_script_that_is_sent_alone_is_told_that_its_outputs_end_with_the_pods(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    output = kit("submit", "--name", "run", "--", "train.py")
    assert "is gone with its pod; --workdir . --keep-outputs" in output
    assert "outputs" not in kit("submit", "--name", "own-workload")
