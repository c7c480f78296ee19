"""The interface of all kinds of job: manifest, pods, status, and the patches that change them. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from kitctl.base import names

if TYPE_CHECKING:
    from pathlib import Path  # four milliseconds of `kitctl submit --help`

Object: TypeAlias = dict[str, Any]
Result: TypeAlias = Literal["Succeeded", "Failed"]
DNS_LABEL: Final = 63  # characters at most, by RFC 1035


class Prerequisite(NamedTuple):
    """An object of the cluster that jobs of a kind refer to; its label has the version that kitctl expects."""

    resource: str
    api_version: str
    plural: str
    name: str
    label: str
    version: str
    fix: str
    """What to do where it is missing."""


class JobKind(ABC):
    """One kind of job. Stateless: methods read objects as the API server writes them, and return values and patches.

    A node is a pod of the job's node group; its index is 0 to the number of nodes less one.
    """

    name: ClassVar[str]
    """In a job file."""
    title: ClassVar[str]
    """In a sentence."""
    api_version: ClassVar[str]
    resource: ClassVar[str]
    """The Kubernetes ``kind`` of the object."""
    plural: ClassVar[str]
    """The resource's name in the API server's paths and in RBAC rules."""
    operator: ClassVar[str] = ""
    """What a cluster needs to have installed; empty: every cluster has this kind."""
    legacy: ClassVar[str] = ""
    """Why new jobs should have another kind; empty: no reason."""
    prerequisite: ClassVar[Prerequisite | None] = None
    """What its jobs need besides."""
    size_field: ClassVar[str] = ""
    """The field that has the number of nodes of one that can be scaled, in a sentence."""
    identity_labels: ClassVar[frozenset[str]] = frozenset()
    """Labels of its pods that its controller chooses, to tell them from those of all others."""
    pod_finalizer: ClassVar[str] = ""
    """What its controller holds each pod by until it has seen its end; empty: by nothing."""
    made_of: ClassVar[str] = ""
    """The key of what its controller makes of a job, of the same name, for another one to run; empty: it makes pods."""
    template: ClassVar[str]
    """The object's template under ``manifests/``, without its suffix."""
    templates: ClassVar[Path | None] = None
    """The folder of its template and of those that replace others of ``manifests/``; None: all are there."""
    exit_codes: ClassVar[Mapping[str, int]]
    """The agent's exit codes by outcome: done, drained, retryable, fatal."""
    terminal_conditions: ClassVar[Mapping[str, Result]]
    """The status conditions that end a job; interim ones come a moment before the final one."""
    index_label: ClassVar[str]
    """The label of a pod that holds its node index."""
    job_label: ClassVar[str] = names.LABEL_INSTANCE
    """The label of a pod that holds its job's name."""
    labelled: ClassVar[bool] = True
    """Whether all of its jobs bear kitctl's labels; people write others by hand."""
    container: ClassVar[str] = names.CONTAINER
    """The name of the pods' container in which the agent runs."""
    downward_env: ClassVar[Mapping[str, str]]
    """Variables of a pod that the downward API fills: the field's path by name."""
    pods_know_uid: ClassVar[bool]
    """Whether pods bear the job's uid; agents ask the API server for it otherwise."""
    sets_torchrun_env: ClassVar[bool]
    """Whether the controller itself sets torchrun's variables, ``PET_*``."""
    headless_service: ClassVar[bool]
    """Whether nodes get their DNS names from a Service of the job; the controller makes Services otherwise."""
    subdomain: ClassVar[bool] = False
    """Whether nodes' DNS names are below the job's name without a Service of the job's own."""
    restart_policy: ClassVar[str]
    """Of the pod template; empty: the controller sets it."""
    in_queues: ClassVar[bool] = True
    """Whether it may wait in a queue of Kueue."""
    queue_admits_fewer: ClassVar[bool] = False
    """Whether Kueue may start an elastic job with fewer nodes than its maximum, and scale it while it runs."""
    random_suffix: ClassVar[int] = 0
    """Characters of a pod's name after its host name, where the cluster wants both to be a DNS label."""
    fixed_size: ClassVar[str] = ""
    """Why the number of nodes of an existing job cannot be changed; empty: an elastic job can be scaled."""

    @property
    def group(self) -> str:
        """The API group."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        """Its resource among all of a cluster, as kubectl names it: other groups may have such a kind, too."""
        return f"{self.resource}.{self.group}"

    def path(self, job: str) -> str:
        """Where a namespace's API server has a job: ``<group>/<version>/<plural>/<name>``."""
        return f"apis/{self.api_version}/{self.plural}/{job}"

    def runtime(self, *, elastic: bool) -> str:  # noqa: ARG002 - for kinds that have one
        """The name of the prerequisite that a job refers to; empty: its kind has none."""
        return ""

    def runtimes_image(self, runtime: Object) -> str:  # noqa: ARG002 - as above
        """The image that such a prerequisite has for jobs that name none; empty: none."""
        return ""

    @abstractmethod
    def pod_name(self, job: str, index: int) -> str:
        """The host name of a node, which its pod's name begins with; a DNS label, so at most 63 characters."""

    def name_limit(self, nodes: int) -> int:
        """The maximum length of a job's name: the longest host name has to be a DNS label."""
        return DNS_LABEL - len(self.pod_name("", nodes - 1)) - self.random_suffix

    def dns_name(self, job: str, index: int) -> str:
        """The DNS name of a node within its namespace."""
        host = self.pod_name(job, index)
        return f"{host}.{job}" if self.headless_service or self.subdomain else host

    def pod_owner(self, job: str) -> str:
        """The name of the object that creates its pods, and has the events of a failure to do so."""
        return job

    def owns_pod(self, job: Object, pod: Object) -> bool:
        """Whether a pod is one of this job's, not of an earlier job of its name."""
        owners = pod["metadata"].get("ownerReferences", [])
        return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)

    def runs_kit(self, job: Object) -> bool:
        """Whether a job of this kind is one of kitctl's."""
        return bool(job["metadata"].get("labels", {}).get(names.LABEL_NAME) == names.APP_NAME)

    def progress(self, job: Object) -> Object:  # noqa: ARG002 - an override needs it
        """The training progress from the job's own status, as parts of a report; empty if it has no such field."""
        return {}

    def complete(self, job: Object) -> Object:
        """The object from what its template gives, with what the job adds to its pods.

        Raises:
            SpecError: the kind has no place for something that the job asks for.
        """
        return job

    @abstractmethod
    def pod_template(self, job: Object) -> Object:
        """The template of its pods."""

    @abstractmethod
    def nodes(self, job: Object) -> str:
        """The number of nodes that the job was submitted for: ``3``, or ``2:4``."""

    @abstractmethod
    def desired_nodes(self, job: Object) -> int:
        """The number of nodes that it should have now."""

    def suspended(self, job: Object) -> bool:
        """Whether it is suspended: by ``spec.suspend``, where most kinds have it."""
        return bool(job["spec"].get("suspend", False))

    def run_id(self, job: Object) -> str:  # noqa: ARG002 - an override needs it
        """The run's id, if the manifest has to contain one; empty: the job's uid is the id."""
        return ""

    def failed_pods(self, job: Object) -> int:  # noqa: ARG002 - an override needs it
        """The number of its pods that have failed so far; 0 if its controller does not count them."""
        return 0

    def suspend(self, *, suspended: bool) -> Object:
        """The merge patch that suspends or resumes a job."""
        return {"spec": {"suspend": suspended}}

    def scale(self, nodes: int) -> Object:
        """The merge patch that sets the number of nodes of an elastic job.

        Raises:
            NotImplementedError: a job of this kind cannot be scaled (``fixed_size``).
        """
        raise NotImplementedError(f"{self.fixed_size}: {nodes}")


def plain_env(template: Object) -> dict[str, str]:
    """The variables of a pod template's first container that have a literal value."""
    container = template["spec"]["containers"][0]
    return {variable["name"]: variable["value"] for variable in container.get("env", []) if "value" in variable}
