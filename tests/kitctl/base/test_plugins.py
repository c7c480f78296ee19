"""Targets and kinds from other distributions, found by entry points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kitctl import kinds
from tests import fast_yaml
from tests.kitctl import volcano
from tests.kitctl.targets.cluster.apiserver import ApiServer

VOLCANO = "batch.volcano.sh/v1alpha1"


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """A folder with an installed distribution."""
    return volcano.install(tmp_path)


def kitctl(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(site), "XDG_STATE_HOME": str(site / "state")}
    return subprocess.run(
        [sys.executable, "-m", "kitctl", *words], env=env, capture_output=True, text=True, check=False
    )


def test_an_installed_kind_is_rendered_with_its_own_template(site: Path) -> None:
    done = kitctl(site, "render", "--name", "run", "--kind", "VolcanoJob", "--nodes", "3")
    assert done.returncode == 0, done.stderr
    *_, job = fast_yaml.load_all(done.stdout)
    assert (job["apiVersion"], job["kind"]) == (VOLCANO, "Job")
    (task,) = job["spec"]["tasks"]
    assert task["replicas"] == job["spec"]["minAvailable"] == 3
    assert task["template"]["spec"]["containers"][0]["name"] == "pytorch"
    schema = json.loads(kitctl(site, "schema").stdout)
    assert "VolcanoJob" in schema["$defs"]["JobSpec"]["properties"]["kind"]["enum"]


def test_a_kind_in_an_archive_is_found(site: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "site"), "zip", site))
    assert "VolcanoJob" in kitctl(archive, "schema").stdout


def test_where_no_distribution_has_any_none_is_read(tmp_path: Path) -> None:
    code = "import sys; from kitctl.kinds import all_kinds; all_kinds(); print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "False\n"


def test_a_job_of_another_group_is_not_taken_for_an_indexed_job() -> None:
    assert kinds.of_object({"apiVersion": "batch/v1", "kind": "Job"}) is kinds.DEFAULT
    assert kinds.of_object({"apiVersion": "batch/v2", "kind": "Job"}) is kinds.DEFAULT, "a later version of the group"
    with pytest.raises(KeyError, match=r"Job\.batch\.volcano\.sh"):
        kinds.of_object({"apiVersion": VOLCANO, "kind": "Job"})


def test_two_kinds_called_job_are_found_each_in_its_group(site: Path, tmp_path: Path) -> None:
    with ApiServer() as server:
        config = ("--kubeconfig", str(server.kubeconfig(tmp_path)))
        for name, kind, resource in (("own", "VolcanoJob", "jobs"), ("plain", "IndexedJob", "jobs.batch")):
            rendered = kitctl(site, "render", "--name", name, "--kind", kind, "--nodes", "2:4").stdout
            *_, job = fast_yaml.load_all(rendered)
            server.put(resource, name, **{part: job[part] for part in ("apiVersion", "kind", "metadata", "spec")})
        listed = json.loads(kitctl(site, "list", *config, "-o", "json").stdout)
        assert {one["name"]: one["jobKind"] for one in listed["items"]} == {"own": "VolcanoJob", "plain": "IndexedJob"}
        status = json.loads(kitctl(site, "status", "own", *config, "-o", "json").stdout)
        assert (status["jobKind"], status["nodeRange"]) == ("VolcanoJob", "2:4")
        refused = kitctl(site, "scale", "own", "--nodes", "3", *config)
        assert "Volcano does not scale a job of this kind" in refused.stderr
        assert kitctl(site, "delete", "own", *config).returncode == 0
        assert (server.names("jobs"), server.names("jobs.batch")) == (set(), {"plain"})


def test_an_installed_target_is_connected_by_its_name(site: Path) -> None:
    done = kitctl(site, "list", "--target", "example")
    assert (done.returncode, "connected by a plugin" in done.stderr) == (0, True), done.stderr


def test_an_unknown_name_is_refused_with_all_that_are_known(site: Path) -> None:
    done = kitctl(site, "list", "--target", "nowhere")
    assert done.returncode == 2
    assert done.stderr == "error: there is no target 'nowhere'\nfix: choose one of local, cluster, example\n"
    refusal = kitctl(site, "render", "--kind", "Deployment").stderr
    assert "auto, IndexedJob, TrainJob, JobSet, PyTorchJob, VolcanoJob" in refusal


def test_a_broken_plugin_is_named(site: Path) -> None:
    (site / "volcano_kind.py").write_text("import absent_module\n")
    done = kitctl(site, "list", "--target", "example")
    assert done.returncode == 2
    assert "the entry point example = volcano_kind of volcano-kind cannot be imported" in done.stderr
    assert kitctl(site, "render", "--kind", "IndexedJob").returncode == 0, "nothing else needs it"
