"""Releases: one version in all files; nothing is published before all is built and tested, nor without a setting."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kitctl
from tests.cluster.kind import settings
from tools import set_version

ROOT = Path(__file__).parents[2]
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
CHARTS = set_version.CHARTS
SEMANTIC = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")  # semver.org, without build metadata
HOOK = "hatch_build.py"
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = RELEASE["jobs"][job]["steps"]
    return found


def test_every_file_states_the_same_version() -> None:
    assert list(set_version.mismatches()) == []
    assert set_version.current() == kitctl.__version__


def test_the_version_has_the_form_that_set_version_accepts() -> None:
    assert set_version.FORM.fullmatch(kitctl.__version__)


def test_a_new_version_is_written_to_the_files_that_are_not_generated(tmp_path: Path) -> None:
    for name in set_version.WRITTEN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    set_version.write("12.0.3rc1", tmp_path)
    assert set_version.current(tmp_path) == "12.0.3rc1"
    assert list(set_version.mismatches(root=tmp_path)) == []
    chart = yaml.safe_load((tmp_path / "charts" / "training-job" / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == "12.0.3rc1"
    assert SEMANTIC.fullmatch(chart["version"])
    assert chart["version"] == "12.0.3-rc.1"


def test_another_tag_than_the_version_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert set_version.main(["--check", "99.0.0"]) == 1
    assert "trainer/kitjob/__init__.py" in capsys.readouterr().out
    assert set_version.main(["--check", kitctl.__version__]) == 0


@pytest.mark.parametrize(
    ("version", "chart"), [("0.2.0", "0.2.0"), ("0.2.0rc1", "0.2.0-rc.1"), ("1.0.0a12", "1.0.0-a.12")]
)
def test_a_charts_version_has_the_form_that_helm_takes(version: str, chart: str) -> None:
    assert set_version.FORM.fullmatch(version)
    assert SEMANTIC.fullmatch(chart)
    assert set_version.semantic(version) == chart


def needed_by(job: str) -> set[str]:
    """The jobs that a job waits for, directly or not."""
    needs = RELEASE["jobs"][job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*map(needed_by, direct))


def publishers() -> set[str]:
    """The jobs that send something to a place outside of the workflow's run."""
    marks = ("helm push", "gh release create", "gh-action-pypi-publish", "docker/login-action")
    return {
        job
        for job, content in RELEASE["jobs"].items()
        if any(
            mark in step.get("run", "") + step.get("uses", "") for step in content.get("steps", []) for mark in marks
        )
    }


def test_nothing_is_published_before_all_is_tested_and_built() -> None:
    assert publishers() == {"image", "push-chart", "pypi", "github-release"}
    for job in publishers():
        assert {"version", "tests", "packages", "chart"} <= needed_by(job), job


def test_pypi_which_takes_nothing_back_comes_after_the_other_registries() -> None:
    assert {"image", "push-chart"} <= needed_by("pypi")


def test_no_job_that_others_need_is_ever_skipped() -> None:
    needed = set().union(*map(needed_by, RELEASE["jobs"]))
    assert [job for job in needed if "if" in RELEASE["jobs"][job]] == []


def test_each_download_names_artifacts_that_an_earlier_job_uploads() -> None:
    for job in RELEASE["jobs"]:
        uploaded = {
            step["with"]["name"]
            for earlier in needed_by(job)
            for step in RELEASE["jobs"][earlier].get("steps", [])
            if "upload-artifact" in step.get("uses", "")
        }
        for step in RELEASE["jobs"][job].get("steps", []):
            if "download-artifact" in step.get("uses", ""):
                wanted = step["with"].get("pattern", step["with"].get("name", "")).strip("{}").split(",")
                assert set(wanted) <= uploaded, (job, wanted)


def test_without_its_setting_nothing_leaves_the_runner() -> None:
    conditions = {"pypi": "vars.RELEASE_PYPI == 'true'", "github-release": "vars.RELEASE_GITHUB == 'true'"}
    for job, setting in conditions.items():
        assert setting in RELEASE["jobs"][job]["if"]
    (push,) = (step for step in steps("push-chart") if "helm push" in step.get("run", ""))
    assert "env.REGISTRY != ''" in push["if"]
    (build,) = (step for step in steps("image") if "build-push-action" in step.get("uses", ""))
    assert build["with"]["push"] == "${{ steps.image.outputs.push == 'true' }}"
    signing = [
        step for job in ("packages", "image", "chart") for step in steps(job) if "/attest" in step.get("uses", "")
    ]
    assert len(signing) == 4
    assert all("env.SIGN == 'true'" in step["if"] for step in signing)
    assert "vars.RELEASE_GITHUB == 'true'" in RELEASE["env"]["SIGN"]


def test_a_push_and_a_night_do_not_cancel_each_other() -> None:
    concurrency = CI["concurrency"]
    assert "github.event_name" in concurrency["group"]
    assert concurrency["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"


def test_every_action_of_a_workflow_is_pinned_to_a_commit() -> None:
    workflows = (ROOT / ".github" / "workflows").glob("*.yml")
    uses = [use for path in workflows for use in re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))]
    assert len(uses) > 10
    pinned = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+(;.*)?")
    assert [use for use in uses if not use.startswith("./") and not pinned.fullmatch(use)] == []


def test_helm_is_of_the_version_that_the_tests_use() -> None:
    versions = [
        step["with"]["version"]
        for job in ("chart", "push-chart")
        for step in steps(job)
        if "helm@" in step.get("uses", "")
    ]
    assert versions == [settings.HELM] * 2


def test_the_image_can_build_the_wheel() -> None:
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    included = {*WHEEL["wheel"]["packages"], *WHEEL["wheel"]["force-include"]}
    assert {f"!{path.partition('/')[0]}" for path in (*included, HOOK)} <= set(sent)
    assert {f"/{path.partition('/')[0]}" for path in included} <= set(WHEEL["sdist"]["include"])


def test_the_sdist_has_what_the_wheel_needs_and_no_tests(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        folders = {name.split("/")[1] for name in archive.getnames()}
    assert folders == {
        HOOK,
        *(path.strip("/") for path in WHEEL["sdist"]["include"]),
        ".gitignore",
        "pyproject.toml",
        "PKG-INFO",
    }
