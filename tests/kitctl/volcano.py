"""Volcano's Job as a kind of another distribution: a second Kubernetes kind called ``Job``, in another API group.

Fields and labels are those of Volcano 1.12 (``batch.volcano.sh/v1alpha1``): one task, whose pods have their index in
the label ``volcano.sh/task-index`` and are named ``<job>-<task>-<index>``; the plugin ``svc`` makes the Service.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

MODULE: Final = """
from pathlib import Path

from kitctl.base import names
from kitctl.kinds.job_kind import JobKind, plain_env
from kitctl.targets import local
from kitjob import variables
from kitjob.names import EXIT_CODES

INDEX = "volcano.sh/task-index"


class VolcanoJob(JobKind):
    name = "VolcanoJob"
    title = "Volcano Job"
    api_version = "batch.volcano.sh/v1alpha1"
    resource = "Job"
    plural = "jobs"
    operator = "Volcano"
    template = "volcano-job"
    templates = Path(__file__).parent / "templates"
    exit_codes = EXIT_CODES
    terminal_conditions = {}
    index_label = INDEX
    downward_env = {variables.KIT_NODE_INDEX: f"metadata.labels['{INDEX}']"}
    pods_know_uid = False
    sets_torchrun_env = False
    headless_service = False
    subdomain = True
    restart_policy = "Never"
    in_queues = False
    fixed_size = "Volcano does not scale a job of this kind"

    def pod_name(self, job, index):
        return f"{job}-node-{index}"

    def pod_template(self, job):
        return job["spec"]["tasks"][0]["template"]

    def nodes(self, job):
        return plain_env(self.pod_template(job)).get(variables.PET_NNODES, str(self.desired_nodes(job)))

    def desired_nodes(self, job):
        return job["spec"]["tasks"][0]["replicas"]


def connect(options):
    options.warn("connected by a plugin")
    return local.connect(options)


remarks = local.remarks
"""
TEMPLATE: Final = """\
---
apiVersion: {{ job.kind.api_version }}
kind: {{ job.kind.resource }}
metadata:
  name: {{ job.name }}
  namespace: {{ job.spec.namespace }}
  labels: {{ job.labels.job }}
  annotations:
    {{ job.names.ANNOTATION_SPEC_HASH }}: {{ job.hash }}
    {% for key, value in job.annotations.items() %}
    {{ key }}: {{ value }}
    {% endfor %}
spec:
  schedulerName: volcano
  minAvailable: {{ job.spec.max_nodes }}
  plugins: {svc: []}
  tasks:
  - name: node
    replicas: {{ job.spec.max_nodes }}
    template:
{% filter indent(6, first=true) %}
{% include "pod.yaml.j2" %}
{% endfilter %}
"""
POINTS: Final = "[kitctl.kinds]\nVolcanoJob = volcano_kind:VolcanoJob\n\n[kitctl.targets]\nexample = volcano_kind\n"


def install(site: Path) -> Path:
    """Put an installed distribution with that kind into a folder; returns the folder, which belongs on the path."""
    info = site / "volcano_kind-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: volcano-kind\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (site / "volcano_kind.py").write_text(MODULE)
    (site / "templates").mkdir()
    (site / "templates" / "volcano-job.yaml.j2").write_text(TEMPLATE)
    return site
