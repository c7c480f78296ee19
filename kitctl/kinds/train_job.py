"""The TrainJob of Kubeflow Trainer 2: a runtime that administrators install, and each job's own part. Pure.

Why: decision 44.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from kitctl.base import documents, names
from kitctl.base.errors import Problem, SpecError
from kitctl.kinds.job_kind import Object, Prerequisite, Result, plain_env
from kitctl.kinds.job_set import NODE, SET_NAME, JobSet, JobSetPods
from kitjob import variables
from kitjob.names import EXIT_CODES, SNAPSHOT_PATH
from kitjob.record import camel

MANAGER: Final = "kitctl.dev/kitctl"  # of the patch that the job makes to its runtime
RUNTIME: Final = "kitctl-submit"  # for jobs that kitctl or its chart renders
ELASTIC_RUNTIME: Final = "kitctl-submit-elastic"  # for elastic jobs, which end with node 0
PLAIN_RUNTIME: Final = "kitctl"  # for handwritten TrainJobs
PLAIN_CLAIM: Final = "kitctl-snapshots"  # the claim template of PLAIN_RUNTIME; a claim is named <template>-<job>
NO_IMAGE: Final = "kitctl"  # of a runtime for which the platform has chosen none
GRACE_SECONDS: Final = 60  # of both runtimes

# Metrics of status.trainerStatus that are parts of a report; kittrain.agent.report.trainer_status writes them.
REPORTED: Final = (
    "world_size",
    "step",
    "total_steps",
    "epoch",
    "epochs",
    "loss",
    "samples_per_second",
    "steps_per_second",
    "snapshot_step",
)
# Fields of the Job, its pods and their container that the runtime sets for all jobs: the job file's key, and the value.
RUNTIMES_OWN: Final[Mapping[str, tuple[str, object]]] = {
    "backoffLimit": ("policy.backoffLimit", 100),
    "ttlSecondsAfterFinished": ("policy.ttl", None),
    "terminationGracePeriodSeconds": ("policy.gracePeriod", GRACE_SECONDS),
    "priorityClassName": ("scheduling.priorityClass", None),
    "schedulerName": ("scheduling.scheduler", None),
    "envFrom": ("envFrom", None),
}
# Fields that a TrainJob can express, and those whose value the runtime sets as well.
PATCHED: Final = (
    "serviceAccountName",
    "imagePullSecrets",
    "securityContext",
    "nodeSelector",
    "affinity",
    "tolerations",
)
CARRIED: Final = {
    "job": {"completions", "parallelism", "activeDeadlineSeconds", "template"},
    "pod": {*PATCHED, "volumes", "containers"},
    "container": {
        "name",
        "image",
        "command",
        "args",
        "env",
        "resources",
        "securityContext",
        "volumeMounts",
        "workingDir",
    },
}
ALIKE: Final = {
    "job": {"completionMode", "podReplacementPolicy", "podFailurePolicy", "successPolicy"},
    "pod": {"enableServiceLinks", "automountServiceAccountToken"},
    "container": {"ports", "terminationMessagePath", "terminationMessagePolicy"},
}


class TrainJob(JobSetPods):
    """A ``trainer.kubeflow.org/v1alpha1`` TrainJob, whose controller makes a JobSet of its runtime and patches."""

    name = "TrainJob"
    title = "TrainJob"
    api_version = "trainer.kubeflow.org/v1alpha1"
    resource = "TrainJob"
    plural = "trainjobs"
    operator = "Kubeflow Trainer 2.2 or later"
    prerequisite = Prerequisite(
        resource="ClusterTrainingRuntime",
        api_version=api_version,
        plural="clustertrainingruntimes",
        name=RUNTIME,
        label="kitctl.dev/runtime",
        version="1",
        fix="have it installed: helm install kit-platform charts/platform",
    )
    made_of = JobSet().key
    elastic_runtime = ELASTIC_RUNTIME
    template = "trainjob"
    exit_codes = EXIT_CODES
    terminal_conditions: ClassVar[Mapping[str, Result]] = {"Complete": "Succeeded", "Failed": "Failed"}
    in_queues = False
    fixed_size = "the number of nodes of a TrainJob cannot be changed"
    job_label = SET_NAME
    labelled = False
    container = NODE
    sets_torchrun_env = True
    headless_service = False
    subdomain = True
    restart_policy = ""

    def runtime(self, *, elastic: bool) -> str:
        """Of kitctl's two for rendered jobs."""
        return ELASTIC_RUNTIME if elastic else RUNTIME

    def runtimes_image(self, runtime: Object) -> str:
        """The platform's, where it has chosen one."""
        jobs = runtime.get("spec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
        pods = [one["template"]["spec"]["template"]["spec"] for one in jobs if one["name"] == NODE]
        images = [one.get("image", "") for pod in pods for one in pod["containers"] if one["name"] == NODE]
        return "".join(image for image in images if image != NO_IMAGE)

    def owns_pod(self, job: Object, pod: Object) -> bool:
        """By the name of its JobSet, whose uid the TrainJob does not have; an earlier job's pods are older."""
        mine, where = job["metadata"], pod["metadata"]
        return bool(
            where.get("labels", {}).get(SET_NAME) == mine["name"]
            and where["creationTimestamp"] >= mine["creationTimestamp"]
        )

    def runs_kit(self, job: Object) -> bool:
        """Also one without labels, whose runtime is kitctl's."""
        return super().runs_kit(job) or job["spec"]["runtimeRef"]["name"] in {RUNTIME, ELASTIC_RUNTIME, PLAIN_RUNTIME}

    def complete(self, job: Object) -> Object:
        """A TrainJob from the Job that the template has in its place.

        Raises:
            SpecError: the job asks for something that only the runtime can set.
        """
        inner = job["spec"].pop("job")
        pod, container = inner["template"]["spec"], inner["template"]["spec"]["containers"][0]
        parts = {"job": inner, "pod": pod, "container": container}
        if problems := [problem for part, found in parts.items() for problem in _refused(part, found)]:
            raise SpecError(problems)
        deadline = {key: inner[key] for key in ("activeDeadlineSeconds",) if key in inner}
        patch = {
            "metadata": inner["template"]["metadata"],
            "spec": {key: pod[key] for key in PATCHED if key in pod}
            | {"containers": [_container_patch(container)], "volumes": pod["volumes"]},
        }
        spec = job["spec"] | deadline | {"trainer": job["spec"]["trainer"] | _trainer(inner, container)}
        return job | {"spec": spec | {"runtimePatches": [_runtime_patch(patch)]}}

    def progress(self, job: Object) -> Object:
        """``status.trainerStatus``, which agents write where Trainer's feature gate TrainJobStatus is on."""
        status = job.get("status", {}).get("trainerStatus", {})
        texts = {one["name"]: one["value"] for one in status.get("metrics", ())}
        metrics = {name: json.loads(text) for name, text in texts.items() if _is_number(text)}
        known = {name: metrics.pop(name) for name in REPORTED if name in metrics}
        if not known:
            return {}
        world_size = known.pop("world_size", 0)
        progress = {**known, "eta_seconds": status.get("estimatedRemainingSeconds"), "metrics": metrics}
        return {"worldSize": world_size, "progress": {camel(name): value for name, value in progress.items()}}

    def pod_template(self, job: Object) -> Object:
        """The known part of it: the job's own patch, and of the runtime's part what the job's fields require."""
        if "job" in job["spec"]:  # not yet complete
            template: Object = job["spec"]["job"]["template"]
            return template
        trainer, patch = job["spec"].get("trainer", {}), _own_patch(job) or _plain_patch(job)
        (patched,) = patch["spec"]["containers"]
        carried = {"env": trainer.get("env", []), "resources": trainer.get("resourcesPerNode", {})}
        container = carried | {key: trainer[key] for key in ("image", "command", "args") if key in trainer} | patched
        spec = patch["spec"] | {"containers": [container], "terminationGracePeriodSeconds": GRACE_SECONDS}
        return {"metadata": patch.get("metadata", {}), "spec": spec}

    def nodes(self, job: Object) -> str:
        """The range that its agents read; a TrainJob has none."""
        env = plain_env(self.pod_template(job))
        most = self.desired_nodes(job) - documents.read_settings(env).spares
        low = documents.min_nodes(env, most)
        return str(most) if low == most else f"{low}:{most}"

    def desired_nodes(self, job: Object) -> int:
        """``spec.trainer.numNodes``; by default one."""
        inner = job["spec"].get("job") or {}
        count: int = inner.get("completions") or job["spec"].get("trainer", {}).get("numNodes", 1)
        return count


def _is_number(text: str) -> bool:
    try:
        return isinstance(json.loads(text), int | float)
    except ValueError:
        return False


def _refused(part: str, found: Mapping[str, Any]) -> Iterator[Problem]:
    """Fields of a Job, its pod or its container that a TrainJob cannot express."""
    prefix = {"job": "", "pod": "pod.spec.", "container": f"pod.spec.containers[{names.CONTAINER}]."}[part]
    for field in found.keys() - CARRIED[part] - ALIKE[part]:
        key, value = RUNTIMES_OWN.get(field, (f"{prefix}{field}", None))
        if found[field] != value:
            yield Problem.of(key, "a TrainJob leaves this to its runtime", "leave it out, or choose another kind")


def _trainer(inner: Object, container: Object) -> Object:
    launch = {"command": container["command"]} if "command" in container else {}
    enter = ["-C"] if launch else ["env", "-C"]  # ``bootstrap.py`` takes it, too: an image may have no ``env``
    folder = [*enter, container["workingDir"]] if "workingDir" in container else []
    resources = {"resourcesPerNode": container["resources"]} if container.get("resources") else {}
    return {
        "numNodes": inner["completions"],
        "image": container["image"],
        **launch,
        "args": [*folder, *container["args"]],
        "env": container["env"],
        **resources,
    }


def _container_patch(container: Object) -> Object:
    return {"name": NODE, **{key: container[key] for key in ("securityContext", "volumeMounts") if key in container}}


def _runtime_patch(pod_template: Object) -> Object:
    nodes = {"name": NODE, "template": {"spec": {"template": pod_template}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [nodes]}}}}


def _own_patch(job: Object) -> Object | None:
    """The pod template that kitctl or its chart has patched in; None: the job was written by hand."""
    for patch in job["spec"].get("runtimePatches", ()):
        if patch["manager"] == MANAGER:
            (nodes,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
            template: Object = nodes["template"]["spec"]["template"]
            return template
    return None


def _plain_patch(job: Object) -> Object:
    """What a handwritten job gets from its runtime, with the job's own variables."""
    claim = {"name": "snapshots", "persistentVolumeClaim": {"claimName": f"{PLAIN_CLAIM}-{job['metadata']['name']}"}}
    mount = {"name": "snapshots", "mountPath": SNAPSHOT_PATH}
    own = job["spec"].get("trainer", {}).get("env", ())
    env = [{"name": variables.KIT_SNAPSHOT_DIR, "value": SNAPSHOT_PATH}, *own]
    return {"spec": {"containers": [{"name": NODE, "env": env, "volumeMounts": [mount]}], "volumes": [claim]}}
