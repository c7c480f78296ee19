from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kitctl import kinds
from kitctl.base import names
from kitctl.code.code_tree import Sources
from kitctl.code.trainer_package import TrainerPackage
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob.fields import Kind
from kitjob.names import EXIT_CODES, SECRET_KEY
from kitjob.record import Record, replace
from kitjob.sections import Policy, Scheduling, Security, Snapshots
from tests import fast_yaml
from tests.conftest import Golden
from tests.kitctl.rendered import document_in, document_of, job_of, mounts_of, of_kind, pod_in, pod_of

TESTS = Path(__file__).parents[2]
CASES = sorted((TESTS / "cases").glob("*.yaml"))
KINDS = tuple(kinds.KINDS)
SOURCES = {"train.py": "import lib.model\nprint('trained')\n", "lib/model.py": "SIZE = 3\n"}
# Cases that a kind rejects: options that a TrainJob's runtime sets, and queues.
REFUSED = {"TrainJob": ("every-option", "pod-group-volcano", "elastic-queue")}
ACCEPTED = [
    (case, kind)
    for case in CASES
    for kind in KINDS
    if not (case.stem.startswith("longest-name") or case.stem in REFUSED.get(kind, ()))
]
# All cases of the default kind, two of each other: what else differs, `test_kinds_differ_by_their_table_only` shows.
WHOLE = {"TrainJob": ("gpu-3x4", "elastic-2-4")}
GOLDEN = [
    (case, kind)
    for case, kind in ACCEPTED
    if kind == kinds.DEFAULT.name or case.stem in WHOLE.get(kind, ("every-option", "elastic-2-4"))
]
LIMITS = [
    (TESTS / "cases/longest-name-indexed.yaml", "IndexedJob"),
    (TESTS / "cases/longest-name-trainjob.yaml", "TrainJob"),
    (TESTS / "cases/longest-name-jobset.yaml", "JobSet"),
    (TESTS / "cases/longest-name-pytorch.yaml", "PyTorchJob"),
]


def case_objects(case: Path, kind: str) -> list[dict[str, Any]]:
    spec = specfile.build(JobRequest(file=case, flags={"kind": kind}))
    return render.manifests(spec, Sources(files=SOURCES if spec.script == "train.py" else {}, trainer=sent(spec)))


def sent(spec: JobSpec) -> TrainerPackage | None:
    """A trainer that is short enough for a golden file."""
    return None if spec.trainer == "image" else TrainerPackage("import sys\n", b"bootstrap", b"archive")


@pytest.mark.parametrize(("case", "kind"), GOLDEN + LIMITS, ids=lambda value: getattr(value, "stem", value))
def test_golden(case: Path, kind: str, golden: Golden) -> None:
    text = render.to_yaml(case_objects(case, kind))
    golden(TESTS / "golden" / "render" / f"{case.stem}.{kind}.yaml", text)
    assert list(fast_yaml.load_all(text)) == case_objects(case, kind)


# Paths in which the pods of other kinds may differ from an Indexed Job's.
BY_TABLE = (
    r"\.spec\.(restartPolicy|subdomain)",
    r"\.spec\.containers\[0\]\.name",
    r".*\.env\[(KIT_NODE_INDEX|PET_RDZV_ID)\]\..*",
    r".*\.env\[PET_RDZV_ENDPOINT\]\.value",
    r".*\.env\[KIT_SPEC\]\.value\.run\.(rendezvousHost|owner|exitCodes\.\w+)",
)
BY_CONTROLLER = (r".*\.env\[(PET_\w+|PYTHONUNBUFFERED)\]\..*",)  # where it sets torchrun's variables
BY_RUNTIME = (  # of a TrainJob: a merge by name keeps what the runtime has, and `trainer` has the resources
    r"\.spec\.(automountServiceAccountToken|enableServiceLinks)",
    r".*\.(ports\[.*|terminationMessage(Path|Policy)|resources\..*)",
)


@pytest.mark.parametrize(
    ("case", "kind"),
    [one for one in ACCEPTED if one[1] != kinds.DEFAULT.name],
    ids=lambda value: getattr(value, "stem", value),
)
def test_kinds_differ_by_their_table_only(case: Path, kind: str) -> None:
    entry, ours, plain = kinds.KINDS[kind], case_objects(case, kind), case_objects(case, kinds.DEFAULT.name)
    allowed = BY_TABLE + (BY_CONTROLLER if entry.sets_torchrun_env else ()) + (BY_RUNTIME if entry.prerequisite else ())
    pods = [dict(leaves(template_of(objects[-1]))) for objects in (ours, plain)]
    assert [path for path in changed(*pods) if not re.fullmatch("|".join(allowed), path)] == []

    beside = [
        {(thing["kind"], thing["metadata"]["name"]): thing for thing in objects[:-1]} for objects in (ours, plain)
    ]
    missing = {key for key in beside[0].keys() ^ beside[1].keys() if key[0] != "Service" or entry.headless_service}
    assert missing == set()
    for key in beside[0].keys() & beside[1].keys():
        paths = changed(*(dict(leaves(objects[key])) for objects in beside))
        assert not paths or (key[0] == "Role" and not entry.pods_know_uid and len(paths) == 4), (key, paths)


def template_of(job: dict[str, Any]) -> dict[str, Any]:
    """The pod template, with command and arguments as one line, and the folder that a TrainJob has in that line."""
    template = kinds.of_object(job).pod_template(job)
    (container, *_) = template["spec"]["containers"]
    launch, line = container.pop("command", []), container.get("args", [])
    folder = ["-C"] if launch else ["env", "-C"]
    if line[: len(folder)] == folder:
        container["workingDir"], *line = line[len(folder) :]
    container["args"] = launch + line
    return template


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value by its path; variables, ports, volumes and mounts by name; the document by field."""
    if path.endswith("[KIT_SPEC].value") and isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list):
        named = path.rpartition(".")[2] in {"env", "ports", "volumes", "volumeMounts"}
        for number, part in enumerate(value):
            yield from leaves(part, f"{path}[{part.get('name', number) if named else number}]")
    else:
        yield path, value


def changed(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def test_the_case_with_every_option_leaves_no_key_at_its_default() -> None:
    # The version has one value; of these values the others would switch the rest off; requirements are read.
    fixed = {
        "version",
        "workdir",
        "python",
        "snapshots.enabled",
        "snapshots.accessMode",
        "snapshots.storage",
        "security.profile",
        "security.reportStatus",
    }
    spec = specfile.build(JobRequest(file=TESTS / "cases" / "every-option.yaml"))
    fixed |= {f"requirements.{key}" for key in ("file", "indexUrl", "extraIndexUrls", "findLinks", "noIndex")}
    assert set(_defaults(spec, JobSpec())) == fixed


def _defaults(section: Any, plain: Any, path: str = "") -> list[str]:
    found: list[str] = []
    for field in type(section).__fields__:
        value, default = getattr(section, field), getattr(plain, field)
        key = path + re.sub(r"_(.)", lambda match: match[1].upper(), field)
        if isinstance(value, Record):
            found += _defaults(value, default, f"{key}.")
        elif value == default:
            found.append(key)
    return found


def test_objects_follow_those_that_they_need() -> None:
    spec = JobSpec(name="job", command=("train.py",))
    kinds = [thing["kind"] for thing in render.manifests(spec, Sources(files=SOURCES))]
    needed = ["ServiceAccount", "Role", "RoleBinding", "Secret", "ConfigMap", "ConfigMap", "PersistentVolumeClaim"]
    assert kinds == [*needed, "Service", "NetworkPolicy", "Job"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_has_the_jobs_labels(kind: Kind) -> None:
    spec = JobSpec(name="job", namespace="team", kind=kind, labels={"team": "vision"}, annotations={"owner": "ann"})
    objects = render.manifests(spec)
    for thing in objects:
        assert thing["metadata"]["labels"]["team"] == "vision"
        assert thing["metadata"]["namespace"] == "team"
        assert thing["metadata"]["labels"][names.LABEL_INSTANCE] == "job"
        assert thing["metadata"]["name"].startswith("job")
    template = kinds.of_object(objects[-1]).pod_template(objects[-1])
    assert template["metadata"]["labels"]["team"] == "vision"
    assert [one["metadata"].get("annotations", {}).get("owner") for one in objects[-2:]] == [None, "ann"]


def test_what_jobs_share_has_no_label_of_one_of_them() -> None:
    spec = JobSpec(name="job", labels={"team": "vision"})
    made = render.manifests(spec, Sources(trainer=sent(spec)), standalone=False)
    shared = [one for one in made if names.LABEL_INSTANCE not in one["metadata"]["labels"]]
    assert [one["metadata"]["labels"].get("team") for one in shared] == [None]


def test_names_are_printed_as_kubectl_does() -> None:
    assert render.to_names(render.manifests(JobSpec(name="job"))).splitlines()[-3:] == [
        "service/job",
        "networkpolicy.networking.k8s.io/job",
        "job.batch/job",
    ]


def test_auto_without_a_cluster_is_an_indexed_job() -> None:
    assert job_of(JobSpec(name="job"))["kind"] == "Job"


# -- exit codes, release and rights -----------------------------------------------------------------------------------


def test_a_fatal_exit_fails_the_job_and_a_drained_one_costs_nothing() -> None:
    rules = job_of(JobSpec(name="job"))["spec"]["podFailurePolicy"]["rules"]
    by_code = {
        code: rule["action"] for rule in rules if "onExitCodes" in rule for code in rule["onExitCodes"]["values"]
    }
    codes = EXIT_CODES
    assert by_code == {codes["fatal"]: "FailJob", codes["drained"]: "Ignore"}, "retryable is counted, as are signals"


def test_only_an_elastic_job_may_complete_without_its_last_node() -> None:
    assert job_of(JobSpec(name="job", nodes="2:4"))["spec"]["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert "successPolicy" not in job_of(JobSpec(name="job", nodes=4))["spec"]


def test_a_job_waits_for_its_release_or_for_its_queue() -> None:
    assert "suspend" not in job_of(JobSpec(name="job"))["spec"]
    assert job_of(JobSpec(name="job"), suspended=True)["spec"]["suspend"] is True
    queued = job_of(JobSpec(name="job", scheduling=Scheduling(queue="research")))
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"][names.LABEL_QUEUE] == "research"


@pytest.mark.parametrize("kind", KINDS)
def test_the_role_is_limited_to_the_jobs_own_objects(kind: Kind) -> None:
    status = ("configmaps", "job-status", ("get", "patch"))
    secret = ("secrets", "job-rendezvous", ("get", "patch"))
    owner = ("pytorchjobs", "job", ("get",))
    spec = JobSpec(name="job", kind=kind)
    assert rights(render.manifests(spec)) == [status, secret, *([owner] if kind == "PyTorchJob" else [])]
    assert rights(render.manifests(spec, standalone=False, run="a")) == [status], "submit has filled it already"
    open_to_all = JobSpec(name="job", security=Security(rendezvous_secret=False))
    assert rights(render.manifests(open_to_all)) == [status]


def rights(objects: list[dict[str, Any]]) -> list[tuple[str, str, tuple[str, ...]]]:
    """The pods' rights, with the objects that each applies to."""
    rules = of_kind(objects, "Role")["rules"]
    assert all(len(rule["resources"]) == len(rule["resourceNames"]) == 1 for rule in rules)
    return [(rule["resources"][0], rule["resourceNames"][0], tuple(rule["verbs"])) for rule in rules]


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_rendered_without_its_value(kind: Kind) -> None:
    spec = JobSpec(name="job", kind=kind)
    secret = of_kind(render.manifests(spec), "Secret")
    assert not secret.keys() & {"data", "stringData"}
    assert render.to_yaml(render.manifests(spec)) == render.to_yaml(render.manifests(spec)), "nothing is random"
    (volume,) = [volume for volume in pod_of(spec)["volumes"] if "secret" in volume]
    assert volume["secret"] == {"secretName": secret["metadata"]["name"], "optional": True}
    run = document_of(spec)["run"]
    assert run["secretFile"] == f"{mounts_of(spec)['secret']['mountPath']}/{SECRET_KEY}"
    assert run["secretName"] == secret["metadata"]["name"]


def test_a_job_without_a_secret_fails_only_if_it_is_required() -> None:
    off = JobSpec(name="job", security=Security(rendezvous_secret=False))
    assert not [thing for thing in render.manifests(off) if thing["kind"] == "Secret"]
    assert not document_of(off)["run"].keys() & {"secretFile", "secretName"}
    required = JobSpec(name="job", security=Security(rendezvous_secret="require", report_status=False))
    assert document_of(required)["job"]["security"] == {"rendezvousSecret": "require"}
    assert "secretName" not in document_of(required)["run"], "no pod has the right to fill it"


def test_each_run_of_a_pytorchjob_has_its_own_id() -> None:
    spec = JobSpec(name="job", kind="PyTorchJob")

    def rendezvous_id(**given: Any) -> str:
        identity: str = render.manifests(spec, **given)[-1]["spec"]["elasticPolicy"]["rdzvId"]
        return identity

    assert rendezvous_id(standalone=False, run="one") == "job-one"
    assert rendezvous_id(standalone=False, run="two") == "job-two"
    assert rendezvous_id() == rendezvous_id(), "equal objects: the job's uid distinguishes runs"
    assert document_of(spec)["run"]["owner"] == "apis/kubeflow.org/v1/pytorchjobs/job"
    submitted = document_in(render.manifests(spec, standalone=False, run="one"))
    assert not submitted.get("owner")
    assert "owner" not in document_of(JobSpec(name="job"))["run"], "an Indexed Job's pods have its uid"


def test_without_reports_pods_have_no_account() -> None:
    spec = JobSpec(name="job", security=Security(report_status=False))
    assert pod_of(spec)["automountServiceAccountToken"] is False
    asking = replace(spec, policy=Policy(drain_taints=("leaving",)))
    assert pod_of(asking)["automountServiceAccountToken"] is True
    assert "serviceAccountName" not in pod_of(spec)
    kinds = {thing["kind"] for thing in render.manifests(spec)}
    assert not kinds & {"ServiceAccount", "Role", "RoleBinding", "ConfigMap"}
    assert "report" not in document_of(spec)["run"]


def test_each_job_has_its_own_folder_on_a_shared_claim() -> None:
    own = JobSpec(name="job")
    shared = JobSpec(name="job", snapshots=Snapshots(claim="shared"))
    assert "subPath" not in mounts_of(own)["snapshots"]
    assert mounts_of(shared)["snapshots"]["subPath"] == "job"
    assert not [thing for thing in render.manifests(shared) if thing["kind"] == "PersistentVolumeClaim"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_passes_the_restricted_profile(kind: Kind) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, control by control."""
    pod = pod_of(JobSpec(name="job", kind=kind, gpus_per_node=1))
    (container,) = pod["containers"]
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert all(
        volume.keys() & {"configMap", "emptyDir", "persistentVolumeClaim", "secret"} for volume in pod["volumes"]
    )
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("case", "kind"), GOLDEN + LIMITS, ids=lambda value: getattr(value, "stem", value))
def test_references_between_objects_hold(case: Path, kind: Kind) -> None:
    objects = case_objects(case, kind)
    spec = specfile.build(JobRequest(file=case, flags={"kind": kind}))
    pod = pod_in(objects)
    (container,) = pod["containers"]
    made = {(thing["kind"], thing["metadata"]["name"]) for thing in objects}
    mounted = [mount["name"] for mount in container["volumeMounts"]]
    assert mounted == [volume["name"] for volume in pod["volumes"]]
    assert len({mount["mountPath"] for mount in container["volumeMounts"]}) == len(mounted)
    for volume in pod["volumes"]:
        if volume["name"] == "snapshots" and spec.snapshots.shared and not spec.snapshots.claim:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in made
        if volume["name"] == "sources":
            held = of_kind(objects, "ConfigMap", volume["configMap"]["name"])["data"]
            assert {item["key"] for item in volume["configMap"]["items"]} == held.keys()
    if spec.security.report_status:
        assert ("ConfigMap", f"{spec.name}-status") in made
    for name in host_names(spec, kind):
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name), name


def host_names(spec: JobSpec, kind: str) -> list[str]:
    return [kinds.of_spec(kind).pod_name(spec.name, index) for index in range(spec.max_nodes)]


def test_files_of_any_name_are_sent() -> None:
    sources = {"train.py": "a", "lib/train.py": "b", "lib_train.py": "c", "a b/ü.py": "d"}
    objects = render.manifests(JobSpec(name="job", command=("train.py",)), Sources(files=sources))
    held = of_kind(objects, "ConfigMap", "job-sources")["data"]
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) for key in held)
    (volume,) = [volume for volume in pod_in(objects)["volumes"] if volume["name"] == "sources"]
    assert {item["path"]: held[item["key"]] for item in volume["configMap"]["items"]} == sources
