"""The kinds of job as the chart has them (``_kinds.tpl``), and their table in the docs, from ``kitctl.kinds``."""

from __future__ import annotations

from typing import Any, Final

import yaml

from kitctl.kinds import KINDS, JobKind

HEADER: Final = """\
{{/*
The kinds of job, written by `make docs` from kitctl/kinds: what the other templates need to know about each. What a
field means is in kitctl/kinds/job_kind.py. Each kind's own object is in a template named after it.
*/}}
{{- define "training-job.kinds" -}}
"""
FOOTER: Final = """\
{{- end }}

{{/* The job's kind, as JSON: its line of the table, and its name. */}}
{{- define "training-job.kind" -}}
{{- $name := eq .Values.kind "auto" | ternary "IndexedJob" .Values.kind }}
{{- get (include "training-job.kinds" . | fromYaml) $name | merge (dict "name" $name) | toJson }}
{{- end }}
"""
# A kind's field by its name in the chart.
FIELDS: Final = {
    "apiVersion": "api_version",
    "resource": "resource",
    "plural": "plural",
    "container": "container",
    "randomSuffix": "random_suffix",
    "fixedSize": "fixed_size",
    "inQueues": "in_queues",
    "queueAdmitsFewer": "queue_admits_fewer",
    "headlessService": "headless_service",
    "subdomain": "subdomain",
    "setsTorchrunEnv": "sets_torchrun_env",
    "podsKnowUid": "pods_know_uid",
    "restartPolicy": "restart_policy",
    "exitCodes": "exit_codes",
    "downwardEnv": "downward_env",
}
PROBLEMS: Final = {"TrainJob": "training-job.runtimeProblems"}  # the template that names what a kind has no place for


def kinds_tpl() -> str:
    """The whole template."""
    table = {kind.name: _fields(kind) for kind in KINDS.values()}
    return HEADER + yaml.safe_dump(table, sort_keys=False, width=1000) + FOOTER


def _fields(kind: JobKind) -> dict[str, Any]:
    fields = {key: _plain(getattr(kind, field)) for key, field in FIELDS.items()}
    fields["podName"] = kind.pod_name("%s", 0).removesuffix("0") + "%d"  # of a job's name and a node's index
    if kind.prerequisite:
        fields |= {"runtime": kind.prerequisite.name, "elasticRuntime": getattr(kind, "elastic_runtime", "")}
    if kind.name in PROBLEMS:
        fields["problems"] = PROBLEMS[kind.name]
    return fields


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def kinds_table() -> str:
    """The kinds as a Markdown table, a column each."""
    kinds = list(KINDS.values())
    rows = {
        "": [f"{kind.title} (legacy)" if kind.legacy else kind.title for kind in kinds],
        "Needs": [kind.operator or "nothing" for kind in kinds],
        "API": [f"`{kind.api_version}`" for kind in kinds],
        "Pods": [f"`{kind.pod_name('JOB', 0).removesuffix('0')}NODE`" for kind in kinds],
        "`scale` of an elastic job": ["no: immutable" if kind.fixed_size else "yes" for kind in kinds],
        "Waits in a [queue of Kueue](kueue.md)": ["yes" if kind.in_queues else "no: refused" for kind in kinds],
        "Kueue starts an elastic job with fewer nodes": ["yes" if kind.queue_admits_fewer else "no" for kind in kinds],
        "Exit codes: done, drained, retryable, fatal": [
            ", ".join(str(code) for code in kind.exit_codes.values()) for kind in kinds
        ],
        "Longest name, of a job with up to ten nodes": [str(kind.name_limit(10)) for kind in kinds],
    }
    title, *others = [f"| {' | '.join((name, *cells))} |" for name, cells in rows.items()]
    return "\n".join((title.replace("|  |", "| |"), "|" + "---|" * (len(kinds) + 1), *others))
