"""Targets and kinds from other distributions, found by entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLUGIN = """
from pathlib import Path
from kitctl.kinds.indexed_job import IndexedJob
from kitctl.targets import local

class BatchJob(IndexedJob):
    name = "BatchJob"
    title = "Batch Job"
    api_version = "batch.example/v1"
    resource = "BatchJob"
    plural = "batchjobs"
    operator = "the example operator"
    template = "batch-job"
    templates = Path(__file__).parent / "templates"

def connect(options):
    options.warn("connected by a plugin")
    return local.connect(options)

remarks = local.remarks
"""
TEMPLATE = """\
---
apiVersion: {{ job.kind.api_version }}
kind: {{ job.kind.resource }}
metadata: {name: {{ job.name }}, namespace: {{ job.spec.namespace }}}
spec:
  template:
{% filter indent(4, first=true) %}
{% include "pod.yaml.j2" %}
{% endfilter %}
"""
POINTS = "[kitctl.kinds]\nBatchJob = example_plugin:BatchJob\n\n[kitctl.targets]\nexample = example_plugin\n"


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """A folder with an installed distribution."""
    info = tmp_path / "example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "example_plugin.py").write_text(PLUGIN)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "batch-job.yaml.j2").write_text(TEMPLATE)
    return tmp_path


def kitctl(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(site), "XDG_STATE_HOME": str(site / "state")}
    return subprocess.run(
        [sys.executable, "-m", "kitctl", *words], env=env, capture_output=True, text=True, check=False
    )


def test_an_installed_kind_is_rendered_with_its_own_template(site: Path) -> None:
    done = kitctl(site, "render", "--name", "run", "--kind", "BatchJob")
    assert done.returncode == 0, done.stderr
    *_, job = yaml.safe_load_all(done.stdout)
    assert (job["apiVersion"], job["kind"]) == ("batch.example/v1", "BatchJob")
    assert job["spec"]["template"]["spec"]["containers"][0]["name"] == "pytorch"
    schema = json.loads(kitctl(site, "schema").stdout)
    assert "BatchJob" in schema["$defs"]["JobSpec"]["properties"]["kind"]["enum"]


def test_an_installed_target_is_connected_by_its_name(site: Path) -> None:
    done = kitctl(site, "list", "--target", "example")
    assert (done.returncode, "connected by a plugin" in done.stderr) == (0, True), done.stderr


def test_an_unknown_name_is_refused_with_all_that_are_known(site: Path) -> None:
    done = kitctl(site, "list", "--target", "nowhere")
    assert done.returncode == 2
    assert done.stderr == "error: there is no target 'nowhere'\nfix: choose one of local, cluster, example\n"
    refusal = kitctl(site, "render", "--kind", "Deployment").stderr
    assert "auto, IndexedJob, TrainJob, JobSet, PyTorchJob, BatchJob" in refusal


def test_a_broken_plugin_is_named(site: Path) -> None:
    (site / "example_plugin.py").write_text("import absent_module\n")
    done = kitctl(site, "list", "--target", "example")
    assert done.returncode == 2
    assert "the entry point example = example_plugin of example cannot be imported" in done.stderr
    assert kitctl(site, "render", "--kind", "IndexedJob").returncode == 0, "nothing else needs it"
