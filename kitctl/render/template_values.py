"""A job as plain values for the manifest templates, which need no more than ``if`` and ``for`` then. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kitctl import kinds
from kitctl.base import names
from kitctl.base.quantity import amount
from kitctl.code.code_tree import SentFolder, Sources
from kitctl.kinds import JobKind
from kitctl.render import environment, object_metadata
from kitctl.render.pod_groups import POD_GROUPS, PodGroupKind
from kitctl.render.pod_mounts import Mount, mounts, source_key, trainer
from kitctl.render.pod_mounts import claim as claim_name
from kitctl.spec.job_spec import JobSpec
from kitjob.document import written
from kitjob.durations import seconds
from kitjob.names import AUTO, DEFAULT_IMAGE
from kitjob.sections import EnvSource

MIB: Final = 1 << 20
# Default requests. A pod without requests is evicted first when memory runs short.
DEFAULT_REQUESTS: Final = {"cpu": "100m", "memory": "512Mi"}


class TemplateValues(msgspec.Struct, frozen=True, kw_only=True):
    """A job as templates get it, under the name ``job``."""

    spec: JobSpec
    kind: JobKind
    sources: Mapping[str, str]  # text by key of the ConfigMap
    workdir: SentFolder | None
    requirements: SentFolder | None
    hash: str  # a digest of the job and its files
    suspended: bool
    run: str
    standalone: bool
    labels: Mapping[str, Mapping[str, str]]  # by component
    annotations: Mapping[str, str]  # of the job, besides its digest
    pod_annotations: Mapping[str, str]
    selector: Mapping[str, str]
    image: str
    env: tuple[Mapping[str, Any], ...]
    mounts: tuple[Mount, ...]
    env_from: tuple[Mapping[str, Any], ...]
    trainer: Mapping[str, Mapping[str, str]]  # what the ConfigMaps with it have, by name, as base64 by key
    launch: tuple[str, ...]  # what starts a module of a trainer that is sent
    command: tuple[str, ...]
    resources: Mapping[str, Mapping[str, str]]
    tolerations: tuple[Mapping[str, str], ...]
    deadline: int | None  # seconds, as is ttl
    ttl: int | None

    names = names

    @property
    def name(self) -> str:
        """Name of the job, its Service and its access objects."""
        return self.spec.name

    @property
    def status_name(self) -> str:
        """Name of the ConfigMap for the report of rank 0's agent."""
        return names.status_name(self.name)

    @property
    def sources_name(self) -> str:
        """Name of the ConfigMap with the job's files."""
        return names.sources_name(self.name)

    @property
    def archive(self) -> Mapping[str, str]:
        """The folder that is sent as a ConfigMap, as base64 by key; empty: there is none."""
        return self.workdir.binary_data if self.workdir else {}

    @property
    def requirements_name(self) -> str:
        """Name of the ConfigMap with the job's requirements."""
        return names.requirements_name(self.name)

    @property
    def requirements_archive(self) -> Mapping[str, str]:
        """The requirements, as ``archive``."""
        return self.requirements.binary_data if self.requirements else {}

    @property
    def volumes(self) -> list[Mount]:
        """The volumes, each once: one may be mounted in two places."""
        return list({mount.name: mount for mount in self.mounts}.values())

    @property
    def secret_name(self) -> str:
        """Name of the Secret that authenticates the nodes; empty: there is none."""
        return names.secret_name(self.name) if environment.has_secret(self.spec) else ""

    @property
    def claim(self) -> str:
        """Name of the claim for snapshots."""
        return claim_name(self.spec)

    @property
    def pull_secrets(self) -> list[dict[str, str]]:
        """The image pull secrets."""
        return [{"name": name} for name in self.spec.image_pull_secrets]

    @property
    def pod_group(self) -> PodGroupKind | None:
        """The plugin that starts its nodes only together; None: they start one by one."""
        return POD_GROUPS.get(self.spec.scheduling.pod_group)

    @property
    def scheduler(self) -> str:
        """SchedulerName of the pods; empty: the default one."""
        return self.spec.scheduling.scheduler or (self.pod_group.scheduler if self.pod_group else "")

    @property
    def service_account(self) -> str:
        """The pods' service account; empty: none."""
        return self.spec.security.service_account or (self.name if self.spec.security.report_status else "")

    @property
    def asks_the_server(self) -> bool:
        """Whether the pods ask the API server, as their service account."""
        return self.spec.security.report_status or bool(self.spec.policy.drain_taints)

    @property
    def exit_codes(self) -> Mapping[str, int]:
        """The agent's exit codes by outcome, for this kind of job."""
        return self.kind.exit_codes

    @property
    def rendezvous_id(self) -> str:
        """Identifies the run where pods do not have the job's uid."""
        return f"{self.name}-{self.run or self.hash}"

    @property
    def rendezvous_host(self) -> str:
        """DNS name of node 0."""
        return environment.rendezvous_host(self.spec, self.kind)

    @property
    def rendezvous_conf(self) -> Mapping[str, str]:
        """PET_RDZV_CONF by key."""
        return environment.rendezvous_conf(self.spec)


def template_values(
    spec: JobSpec, sources: Sources, *, suspended: bool, standalone: bool = True, run: str = ""
) -> TemplateValues:
    """The values for a job's templates."""
    kind = kinds.of_spec(spec.kind)
    texts = {source_key(path): text for path, text in sources.files.items()}
    launch = environment.launch(kind, sources)
    python = () if launch else names.PYTHON
    return TemplateValues(
        spec=spec,
        kind=kind,
        sources=texts,
        workdir=sources.workdir,
        requirements=sources.requirements,
        hash=spec.digest({**texts, **{one.key: one.tree.digest for one in sources.folders}}),
        suspended=suspended or bool(spec.scheduling.queue),
        run=run,
        standalone=standalone,
        labels=object_metadata.labels(spec),
        annotations=object_metadata.job_annotations(spec, kind),
        pod_annotations=object_metadata.pod_annotations(spec),
        selector={names.LABEL_INSTANCE: spec.name, names.LABEL_COMPONENT: "trainer"},
        image=DEFAULT_IMAGE if spec.image == AUTO else spec.image,
        env=tuple(environment.pod_env(spec, kind, sources, standalone=standalone)),
        env_from=tuple(map(_env_from, spec.env_from)),
        mounts=tuple(mounts(spec, sources, standalone=standalone)),
        trainer=trainer(spec, sources.trainer, standalone=standalone) if sources.trainer else {},
        launch=tuple(map(environment.escape_var_refs, launch)),
        command=tuple(map(environment.escape_var_refs, (*python, names.AGENT, "--", *spec.command, *spec.args))),
        resources=resources(spec),
        tolerations=tuple(map(written, spec.scheduling.tolerations)),
        deadline=seconds(spec.policy.deadline) if spec.policy.deadline else None,
        ttl=seconds(spec.policy.ttl) if spec.policy.ttl else None,
    )


def resources(spec: JobSpec) -> dict[str, dict[str, str]]:
    """Requests and limits of a pod. Kubernetes itself sets a missing request to the limit.

    Snapshots in memory count as the pod's, in both.
    """
    gpus = {spec.gpu_resource: str(spec.gpus_per_node)} if spec.gpus_per_node else {}
    limits = {**spec.resources.limits, **gpus}
    defaults = {name: few for name, few in DEFAULT_REQUESTS.items() if name not in limits}
    amounts = {"requests": {**defaults, **spec.resources.requests, **gpus}, "limits": limits}
    if spec.snapshots.in_memory:
        amounts = {part: _with_memory(given, spec.snapshots.size) for part, given in amounts.items()}
    return {part: given for part, given in amounts.items() if given}


def _with_memory(amounts: Mapping[str, str], more: str) -> dict[str, str]:
    """Amounts with more memory, if they have any: in MiB if that is a whole number, else in bytes."""
    if "memory" not in amounts:
        return dict(amounts)
    total = int(amount(amounts["memory"])) + int(amount(more))
    return {**amounts, "memory": str(total) if total % MIB else f"{total // MIB}Mi"}


def _env_from(source: EnvSource) -> dict[str, Any]:
    kind, name = ("configMapRef", source.config_map) if source.config_map else ("secretRef", source.secret)
    return {kind: {"name": name}} | ({"prefix": source.prefix} if source.prefix else {})
