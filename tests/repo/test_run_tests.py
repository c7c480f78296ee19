"""What `make test` says and answers when there can be no cluster, and when what happens on it takes long or fails."""

from __future__ import annotations

import sys
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
    results = [run_tests.Result("slow tests", "FAILED"), run_tests.Result("cluster up", "passed")]
    assert run_tests._summary(results) == 1
    assert "make cluster-down" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("up", "outcomes"),
    [
        (1, {"fast tests": "passed", "cluster up": "FAILED", "slow tests": "passed", "power tests": "FAILED"}),
        (0, {"fast tests": "passed", "cluster up": "passed", "slow tests": "passed", "power tests": "passed"}),
    ],
)
def test_what_needs_no_cluster_counts_as_it_did_whatever_becomes_of_the_cluster(
    up: int, outcomes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = (sys.executable, "-c", "")
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    monkeypatch.setattr(run_tests, "CLUSTER_UP", (sys.executable, "-c", f"exit({up})"))
    monkeypatch.setattr(run_tests, "_command", lambda _: passes)
    results = run_tests._with_cluster(["fast tests", "slow tests"], ["cluster tests", "power tests"])
    assert dict(result[:2] for result in results).items() >= outcomes.items()
    names = [result.name for result in results]
    assert names[:2] == ["fast tests", "cluster up"]
    assert len(names) == 5


@pytest.mark.parametrize("code", [0, 3])
def test_what_happens_aside_is_shown_to_its_end(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    script = f"import time; print('early', flush=True); time.sleep(0.5); print('late'); exit({code})"
    with run_tests._aside("some script", (sys.executable, "-c", script)) as aside:
        assert aside.follow().outcome == ("FAILED" if code else "passed")
    assert capsys.readouterr().out.splitlines() == ["== some script", "early", "late"]


def test_what_happens_aside_ends_with_whoever_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    with run_tests._aside("sleep", ("sleep", "600")) as aside:
        assert aside.process.poll() is None
    assert aside.process.poll() is not None
