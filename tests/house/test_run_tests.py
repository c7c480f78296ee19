"""What `make test` says and answers when there can be no cluster, and when what happens on it takes long or fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.kind import host
from tools import run_tests


@pytest.fixture(autouse=True)
def _no_cluster_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "obstacle", lambda: "no docker daemon answers")
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.parametrize(("ci", "outcome", "code"), [("", "SKIPPED", 0), ("true", "FAILED", 1)])
def test_a_machine_without_docker_skips_and_says_why_but_not_under_ci(
    ci: str, outcome: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    assert run_tests.main(["cluster"]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(outcome)
    assert last.endswith("no docker daemon answers")


def test_a_failure_is_not_hidden_by_what_passed_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    results = [run_tests.Result("local tests", "FAILED"), run_tests.Result("cluster up", "passed")]
    assert run_tests._summary(results) == 1
    assert "make cluster-down" in capsys.readouterr().out


def test_without_a_cluster_its_tests_have_failed_and_the_local_ones_count_as_they_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def bring_up() -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen([sys.executable, "-c", "exit(1)"]) as process:
            yield process

    (tmp_path / "log").touch()
    monkeypatch.setattr(run_tests, "LOG", tmp_path / "log")
    monkeypatch.setattr(run_tests, "LOCAL", ("--version",))
    monkeypatch.setattr(run_tests, "_bring_up", bring_up)
    results = [result[:2] for result in run_tests._with_cluster(["local", "cluster"], ["cluster"])]
    assert results[:2] == [("local tests", "passed"), ("cluster up", "FAILED")]
    assert {outcome for _, outcome in results[2:]} == {"FAILED"}


@pytest.mark.parametrize("code", [0, 3])
def test_what_happens_on_the_cluster_is_shown_to_its_end(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "LOG", tmp_path / "log")
    script = f"import time; print('early', flush=True); time.sleep(0.5); print('late'); exit({code})"
    with run_tests.LOG.open("wb") as log, subprocess.Popen([sys.executable, "-c", script], stdout=log) as process:
        assert run_tests._follow(process) == code
    assert capsys.readouterr().out.split() == ["early", "late"]
