"""A user's templates replace those of the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.base.errors import UsageError
from kitctl.cli.main import main
from kitctl.render import objects as render
from kitctl.render import templates
from kitctl.spec.job_spec import JobSpec

SPEC = JobSpec(name="job")
OWN = (templates.folder() / "pod.yaml.j2").read_text()


def test_a_replaced_template_is_used_with_the_other_defaults(tmp_path: Path) -> None:
    changed = OWN.replace("enableServiceLinks: false", "enableServiceLinks: false\n  hostNetwork: true")
    (tmp_path / "pod.yaml.j2").write_text(changed)
    *plain, job = render.manifests(SPEC)
    *others, own = render.manifests(SPEC, templates=tmp_path)
    assert others == plain
    assert own["spec"]["template"]["spec"].pop("hostNetwork") is True
    assert own == job


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% if %}", r"pod\.yaml\.j2, line 1: "),
        ("{{ job.absent }}", "'kitctl.render.template_values.TemplateValues object' has no attribute 'absent'"),
        ("spec: [", r"pod|job"),
    ],
)
def test_a_wrong_template_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pod.yaml.j2").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        render.manifests(SPEC, templates=tmp_path)
    assert "compare it with the one in" in caught.value.fix


def test_a_template_that_nothing_uses_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.yaml.j2").write_text(OWN)
    assert main(["render", "--templates", str(tmp_path)]) == 2
    assert "nothing uses pods.yaml.j2" in capsys.readouterr().err
    (tmp_path / "pods.yaml.j2").unlink()
    assert main(["render", "--templates", str(tmp_path)]) == 2
    assert "is not a folder with templates" in capsys.readouterr().err
