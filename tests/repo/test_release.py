"""Releases: one version in all files; the workflow builds everything, and publishes only if that is configured."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kitctl
from kitctl.names import DEFAULT_IMAGE
from tools import set_version

ROOT = Path(__file__).parents[2]
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = RELEASE["jobs"][job]["steps"]
    return found


def test_every_file_states_the_same_version() -> None:
    assert list(set_version.mismatches()) == []
    assert set_version.current() == kitctl.__version__
    assert DEFAULT_IMAGE.endswith(f":{kitctl.__version__}")


def test_the_version_has_the_form_that_set_version_accepts() -> None:
    assert set_version.FORM.fullmatch(kitctl.__version__)


def test_a_new_version_is_written_to_the_files_that_are_not_generated(tmp_path: Path) -> None:
    for name in (*set_version.WRITTEN, *set_version.GENERATED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    set_version.write("12.0.3rc1", tmp_path)
    assert set_version.current(tmp_path) == "12.0.3rc1"
    assert {line.partition(":")[0] for line in set_version.mismatches(root=tmp_path)} == set_version.GENERATED.keys()
    chart = yaml.safe_load((tmp_path / "charts" / "training-job" / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == "12.0.3rc1"


def test_another_tag_than_the_version_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert set_version.main(["--check", "99.0.0"]) == 1
    assert "kitctl/__init__.py" in capsys.readouterr().out
    assert set_version.main(["--check", kitctl.__version__]) == 0


def test_the_workflow_checks_the_tag_before_it_builds() -> None:
    assert any("tools.set_version --check" in step.get("run", "") for step in steps("version"))
    for job in ("packages", "image", "chart"):
        assert "version" in RELEASE["jobs"][job]["needs"]


@pytest.mark.parametrize("job", ["image", "chart", "pypi", "github-release"])
def test_publishing_waits_for_the_tests(job: str) -> None:
    assert "tests" in RELEASE["jobs"][job]["needs"]


def test_publishing_requires_a_tag_and_a_setting() -> None:
    assert RELEASE["jobs"]["pypi"]["if"] == "github.ref_type == 'tag' && vars.RELEASE_PYPI == 'true'"
    assert RELEASE["jobs"]["github-release"]["if"] == "github.ref_type == 'tag'"
    (push,) = (step for step in steps("chart") if "helm push" in step.get("run", ""))
    assert push["if"] == "github.ref_type == 'tag' && env.REGISTRY != ''"
    (build,) = (step for step in steps("image") if "build-push-action" in step.get("uses", ""))
    assert build["with"]["push"] == "${{ steps.image.outputs.push == 'true' }}"
    assert build["with"]["sbom"]
    assert build["with"]["provenance"] == "mode=max"


def test_every_action_of_a_workflow_names_a_version() -> None:
    workflows = (ROOT / ".github" / "workflows").glob("*.yml")
    uses = [use for path in workflows for use in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))]
    assert len(uses) > 10
    assert [use for use in uses if not use.startswith("./") and not re.search(r"@(v\d+|release/v\d+)$", use)] == []


def test_the_image_can_build_the_wheel() -> None:
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    included = {*WHEEL["wheel"]["packages"], *WHEEL["wheel"]["force-include"]}
    assert {f"!{path.partition('/')[0]}" for path in included} <= set(sent)
    assert {path.partition("/")[0] for path in included} <= set(WHEEL["sdist"]["include"])
