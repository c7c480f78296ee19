"""Irreversible deletions need confirmation, and delete nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kitctl.cli.main import main
from kitctl.targets.local import launch
from kitctl.targets.local.folder import state_home
from kitjob.sections import Snapshots
from tests.kitctl.localjobs import ended_job


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    ended_job("job")
    (state_home() / "snapshots" / "default" / "job" / "step-1").mkdir(parents=True)


def kept() -> bool:
    return (state_home() / "snapshots" / "default" / "job" / "step-1").is_dir()


def test_snapshots_are_not_deleted_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", "job", "--snapshots"]) == 2
    assert "give -y (--yes)" in capsys.readouterr().err
    assert kept()
    assert main(["status", "job"]) == 0, "the job is unchanged"
    assert main(["delete", "job", "--snapshots", "-y"]) == 0
    assert not kept()
    assert main(["status", "job"]) == 102


def test_deleting_only_the_job_needs_no_confirmation_and_keeps_its_snapshots(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["delete", "job"]) == 0
    assert "snapshots stay, if it has any" in capsys.readouterr().err
    assert kept()


def test_snapshots_that_a_deleted_job_has_left_are_deleted_later(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", "job"]) == 0
    assert main(["delete", "job"]) == 102
    assert kept()
    assert main(["delete", "job", "--snapshots", "-y"]) == 0
    assert "job: deleted with its snapshots" in capsys.readouterr().err
    assert not kept()
    assert main(["delete", "job", "--snapshots", "-y"]) == 102


def test_a_link_in_place_of_what_a_deleted_job_has_left_is_not_followed(tmp_path: Path) -> None:
    assert main(["delete", "job"]) == 0
    stored = state_home() / "snapshots" / "default" / "job"
    stored.rename(tmp_path / "moved")
    stored.symlink_to(tmp_path / "moved")
    assert main(["delete", "job", "--snapshots", "-y"]) == 2
    assert (tmp_path / "moved" / "step-1").is_dir()


# -- removing snapshots -----------------------------------------------------------------------------------------------


def snapshots_of(name: str, claim: str = "") -> Path:
    """Create the snapshot folder of a job of that name."""
    path = launch.stored_dir(state_home(), "default", name, claim)
    (path / "step-1").mkdir(parents=True)
    return path


def test_jobs_on_one_claim_and_a_job_of_the_claims_name_do_not_touch_each_other() -> None:
    paths = {name: snapshots_of(name, claim) for name, claim in (("shared", ""), ("mine", "shared"), ("its", "shared"))}
    ended_job("shared")
    ended_job("mine", snapshots=Snapshots(claim="shared"))
    assert main(["delete", "shared", "--snapshots", "-y"]) == 0
    assert {name for name, path in paths.items() if path.exists()} == {"mine", "its"}
    assert main(["delete", "mine", "--snapshots", "-y"]) == 0
    assert {name for name, path in paths.items() if path.exists()} == {"its"}


@pytest.mark.parametrize("link", ["snapshots/default/job", "snapshots/default", "snapshots"])
def test_the_target_of_a_link_is_not_removed(link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(state_home() / "snapshots")
    precious = (tmp_path / "default" / "job" / "step-1").resolve()
    precious.mkdir(parents=True)
    (state_home() / link).parent.mkdir(parents=True, exist_ok=True)
    (state_home() / link).symlink_to(tmp_path.joinpath(*Path(link).parts[1:]))
    assert kept()
    assert main(["delete", "job", "--snapshots", "-y"]) == 2
    assert f"remove it yourself: {precious.parent}" in capsys.readouterr().err
    assert precious.is_dir()
    assert main(["status", "job"]) == 0, "the job is unchanged"


def test_links_inside_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    (state_home() / "snapshots" / "default" / "job" / "link").symlink_to(tmp_path)
    assert main(["delete", "job", "--snapshots", "-y"]) == 0
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("claim", ["/abs/precious", "../..", "..", "a/b", "A", "a b", "a\n"])
def test_a_claim_is_a_name(claim: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--claim", claim]) == 2
    assert "snapshots.claim: " in capsys.readouterr().err
    assert main(["submit", "--volume", f"{claim}:/data"]) == 2
    assert "volumes[0].claim: " in capsys.readouterr().err
    assert main(["snapshots", "list", "job", "--claim", claim]) == 2
    assert "is not a valid name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../default/job", "..", ".", "", "/", "job/", "job\n"])
def test_a_name_is_no_path(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", name]) == 102
    assert main(["delete", "job", "-n", f"../{name or 'x'}"]) == 2
    assert "is not a valid name" in capsys.readouterr().err
    assert main(["status", "job"]) == 0
