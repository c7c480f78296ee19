"""What cannot be undone is asked about first."""

from __future__ import annotations

import pytest

from kitctl.__main__ import main
from kitctl.targets.local.folder import state_home
from tests.kitctl.localjobs import ended_job


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    ended_job("job")
    (state_home() / "snapshots" / "default" / "job" / "step-1").mkdir(parents=True)


def kept() -> bool:
    return (state_home() / "snapshots" / "default" / "job" / "step-1").is_dir()


def test_snapshots_are_not_deleted_where_nobody_could_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", "job", "--snapshots"]) == 2
    assert "give -y (--yes)" in capsys.readouterr().err
    assert kept()
    assert main(["status", "job"]) == 0, "the job is there as it was"
    assert main(["delete", "job", "--snapshots", "-y"]) == 0
    assert not kept()
    assert main(["status", "job"]) == 102


def test_a_job_without_its_snapshots_goes_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", "job"]) == 0
    assert "its snapshots stay" in capsys.readouterr().err
    assert kept()
