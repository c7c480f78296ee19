"""A job's additions to its pods are merged, and overwrite nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl import kinds
from kitctl.base.errors import SpecError
from kitctl.render import objects as render
from kitctl.render import overlay
from kitctl.spec.job_spec import JobSpec
from kitjob.pod_section import Pod, ResourceClaim
from kitjob.sections import Policy, Volume

KINDS = tuple(kinds.KINDS)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(st.sampled_from([*"abcd", "env", "volumeMounts"]), TREES, max_size=4)


def template_of(spec: JobSpec) -> dict[str, Any]:
    job = render.manifests(spec)[-1]
    return kinds.of_object(job).pod_template(job)


def problems(pod: Pod, **fields: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        render.manifests(JobSpec(name="job", pod=pod, **fields))
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_without_additions_is_unchanged(kind: str) -> None:
    assert template_of(JobSpec(name="job", kind=kind, pod=Pod())) == template_of(JobSpec(name="job", kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_additions_reach_the_pods_and_change_nothing_else(kind: str) -> None:
    plain = template_of(JobSpec(name="job", kind=kind))
    variable, mount = {"name": "FI_PROVIDER", "value": "efa"}, {"name": "huge", "mountPath": "/huge"}
    main = {"name": "pytorch", "env": [variable], "volumeMounts": [mount]}
    volume = {"name": "huge", "emptyDir": {}}
    pod = template_of(JobSpec(name="job", kind=kind, pod=Pod(spec={"containers": [main], "volumes": [volume]})))
    container = pod["spec"]["containers"][0]
    assert (container["env"].pop(), container["volumeMounts"].pop(), pod["spec"]["volumes"].pop()) == (
        variable,
        mount,
        volume,
    )
    assert pod == plain


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"restartPolicy": "Always"}, "pod.spec.restartPolicy: is reserved by kitctl"),
        ({"containers": [{"name": "pytorch", "args": []}]}, "pod.spec.containers[pytorch].args: is reserved by kitctl"),
        ({"shareProcessNamespace": True}, "pod.spec.shareProcessNamespace: tini has to be process 1"),
        ({"nodeName": "gpu-7"}, "pod.spec.nodeName: binds all pods to one machine"),
        ({"ephemeralContainers": []}, "pod.spec.ephemeralContainers: are of a running pod only"),
        (
            {"containers": [{"name": "pytorch", "lifecycle": {"postStart": {"exec": {"command": ["kill", "1"]}}}}]},
            "pod.spec.containers[pytorch].lifecycle: a hook of the ranks' container",
        ),
        ({"containers": [{"name": "trainer"}]}, "pod.spec.containers[trainer]: a job waits for it, and it may never"),
        ({"containers": {}}, "pod.spec.containers: is not a list; fix: begin with - name: pytorch"),
        ({"containers": ["pytorch"]}, "pod.spec.containers[None]: "),
    ],
)
def test_reserved_fields_are_rejected_at_construction(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        JobSpec(pod=Pod(spec=spec))
    assert [one[: len(problem)] for one in caught.value.problems] == [problem]


@pytest.mark.parametrize("name", ["KIT_SPEC", "WORLD_SIZE", "PET_NNODES"])
def test_a_reserved_variable_is_refused(name: str) -> None:
    main = {"name": "pytorch", "env": [{"name": name, "value": "1"}]}
    with pytest.raises(SpecError, match=rf"pod.spec.containers\[pytorch\].env\[{name}\]: is set by the launcher"):
        JobSpec(pod=Pod(spec={"containers": [main]}))


@pytest.mark.parametrize(
    ("pod", "fields", "problem"),
    [
        (Pod(spec={"terminationGracePeriodSeconds": 5}), {"policy": Policy()}, "it belongs to policy.gracePeriod"),
        (
            Pod(spec={"containers": [{"name": "pytorch", "volumeMounts": [{"mountPath": "/snapshots", "name": "x"}]}]}),
            {},
            "pod.spec.containers[pytorch].volumeMounts[/snapshots].name: is set already",
        ),
        (Pod(labels={"app.kubernetes.io/name": "x"}), {}, "pod.metadata.labels.app.kubernetes.io/name: is set already"),
        (Pod(host_network=True, spec={"hostNetwork": False}), {}, "pod.spec.hostNetwork: is reserved"),
        (Pod(spec={"volumes": [{"emptyDir": {}}]}), {}, "pod.spec.volumes: an item has no name"),
        (
            Pod(spec={"volumes": [{"name": "x", "emptyDir": {}}, {"name": "x", "emptyDir": None}]}),
            {},
            "pod.spec.volumes[x].emptyDir: is set already",
        ),
        (
            Pod(spec={"containers": [{"name": "pytorch", "resources": {"requests": {"cpu": "1"}}}]}),
            {},
            "it belongs to resources",
        ),
    ],
)
def test_a_field_that_is_set_already_is_refused_with_its_owner(pod: Pod, fields: dict[str, Any], problem: str) -> None:
    assert problem in problems(pod, **fields)[0]


def test_fields_that_restricted_namespaces_reject_are_one_warning() -> None:
    assert not overlay.warning(JobSpec(pod=Pod(spec={"hostUsers": True})))  # it is the default
    assert not overlay.warning(JobSpec(pod=Pod(labels={"a": "b"}, capabilities=("NET_BIND_SERVICE",))))
    pod = Pod(host_network=True, capabilities=("IPC_LOCK",), sidecars=({"name": "a", "image": "b"},))
    spec = JobSpec(pod=pod, volumes=(Volume(mount_path="/dev/x", host_path="/dev/x"),))
    assert overlay.warning(spec) == (
        "the pods need a namespace with the label pod-security.kubernetes.io/enforce: privileged, because of: "
        "hostNetwork, volume /dev/x of the host, capability IPC_LOCK of pytorch"
    )


def test_a_claim_to_devices_needs_one_source() -> None:
    with pytest.raises(SpecError, match=r"pod.resourceClaims\[0\]: needs one source; fix: set claim or template"):
        JobSpec(pod=Pod(resource_claims=(ResourceClaim(name="channel"),)))


@given(MAPPINGS, MAPPINGS)
def test_nothing_is_lost_or_overwritten(below: dict[str, Any], above: dict[str, Any]) -> None:
    before = copy.deepcopy((below, above))
    try:
        merged = overlay.apply(below, above)
    except SpecError:
        assert below.keys() & above.keys()
        return
    finally:
        assert (below, above) == before
    assert contains(merged, below)
    assert contains(merged, above)
    assert merged.keys() == below.keys() | above.keys()


def contains(whole: Any, part: Any) -> bool:
    """Whether ``whole`` contains all of ``part``."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(contains(one, item) for one in whole) for item in part)
    return type(whole) is type(part) and whole == part
