"""Labels and annotations of a job's objects. Pure."""

from __future__ import annotations

from typing import Final

import kitctl
from kitctl.base import names
from kitctl.kinds import JobKind
from kitctl.render.pod_groups import POD_GROUPS
from kitctl.spec.job_spec import JobSpec

COMPONENTS: Final = ("trainer", "rendezvous", "status", "sources", "snapshots", "access")
JOB, POD = "job", "pod"  # the job's own object and its pods: the component "trainer", and more
SHARED: Final = "shared"  # what all jobs of a namespace share: the component "sources", of no job


def labels(spec: JobSpec) -> dict[str, dict[str, str]]:
    """The labels of each component, of the job, and of its pods."""
    found = {component: spec.labels | _own(spec, component) for component in COMPONENTS}
    shared = {label: name for label, name in _own(spec, "sources").items() if label != names.LABEL_INSTANCE}
    job, pod = found["trainer"] | _queue_labels(spec), found["trainer"] | _pod_group_label(spec)
    return found | {JOB: job, POD: pod, SHARED: shared}


def job_annotations(spec: JobSpec, kind: JobKind) -> dict[str, str]:
    """Of the job: the user's, and how Kueue may admit it."""
    if not (spec.scheduling.queue and spec.elastic and kind.queue_admits_fewer):
        return spec.annotations
    return spec.annotations | {
        names.ANNOTATION_MIN_PARALLELISM: str(spec.min_nodes),
        names.ANNOTATION_EQUAL_COMPLETIONS: "true",
        names.ANNOTATION_ELASTIC: "true",
    }


def pod_annotations(spec: JobSpec) -> dict[str, str]:
    """Of the pods: what a plugin that starts them together reads, and where their metrics are."""
    group = POD_GROUPS.get(spec.scheduling.pod_group)
    found = {group.annotation: spec.name} if group and group.annotation else {}
    return found | ({names.ANNOTATION_METRICS_PORT: str(spec.metrics.port)} if spec.metrics.enabled else {})


def _own(spec: JobSpec, component: str) -> dict[str, str]:
    return {
        names.LABEL_NAME: names.APP_NAME,
        names.LABEL_INSTANCE: spec.name,
        names.LABEL_COMPONENT: component,
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
        names.LABEL_VERSION: kitctl.__version__,
    }


def _queue_labels(spec: JobSpec) -> dict[str, str]:
    """What Kueue reads."""
    scheduling = spec.scheduling
    found = {names.LABEL_QUEUE: scheduling.queue, names.LABEL_WORKLOAD_PRIORITY: scheduling.workload_priority_class}
    return {label: name for label, name in found.items() if name}


def _pod_group_label(spec: JobSpec) -> dict[str, str]:
    group = POD_GROUPS.get(spec.scheduling.pod_group)
    return {group.label: spec.name} if group and group.label else {}
