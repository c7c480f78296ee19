"""What the events of a pod's claims say while it has no machine."""

from __future__ import annotations

from typing import Any

from kitctl.targets.cluster.read.events import stuck_pods
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.read.test_conditions import UNBOUND

VOLUMES = [{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "data"}}]
POD = {**UNBOUND, "metadata": {"name": "x-0", "namespace": "default"}, "spec": {"volumes": VOLUMES}}


def said(server: ApiServer, name: str, message: str, time: str) -> None:
    server.put("events", name, reason="ProvisioningFailed", message=message, lastTimestamp=time)


def test_a_pod_without_a_volume_has_what_was_said_last_of_its_claim(server: ApiServer, kit: Kit) -> None:
    said(server, "b", "no such class", "2026-01-01T00:00:09Z")
    said(server, "a", "quota is used up", "2026-01-01T00:00:10Z")
    said(server, "c", "waiting", "2026-01-01T00:00:08Z")
    found = stuck_pods(kit.target().api, [POD])
    assert found == {"x-0": "claim data has no volume: ProvisioningFailed: quota is used up"}
    (asked,) = (one for one in server.requests if one.path.endswith("/events"))
    assert asked.query["fieldSelector"] == "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=data"


WAITING = "Waiting for a volume to be created by the external provisioner 'csi.example.com'"


def of_claim(server: ApiServer, claim: str, reason: str, message: str = WAITING) -> None:
    about = {"kind": "PersistentVolumeClaim", "name": claim}
    server.put(
        "events",
        f"{claim}-{reason}".lower(),
        reason=reason,
        message=message,
        involvedObject=about,
        lastTimestamp="2026-01-01T00:00:09Z",
    )


def pod_of(*claims: str) -> dict[str, Any]:
    volumes = [{"persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {**POD, "spec": {"volumes": volumes}}


def test_a_claim_that_fails_is_told_before_one_that_waits(server: ApiServer, kit: Kit) -> None:
    of_claim(server, "snapshots", "ExternalProvisioning")
    of_claim(server, "data", "ProvisioningFailed", "no such class")
    told = stuck_pods(kit.target().api, [pod_of("snapshots", "data")])
    assert told == {"x-0": "claim data has no volume: ProvisioningFailed: no such class"}
    assert stuck_pods(kit.target().api, [pod_of("snapshots")]) == {
        "x-0": f"claim snapshots has no volume: ExternalProvisioning: {WAITING}"
    }


def test_events_of_a_claim_that_has_its_volume_by_now_are_over(server: ApiServer, kit: Kit) -> None:
    of_claim(server, "snapshots", "ExternalProvisioning")
    of_claim(server, "old", "ProvisioningSucceeded")
    server.put("persistentvolumeclaims", "snapshots", status={"phase": "Bound"})
    assert stuck_pods(kit.target().api, [pod_of("snapshots", "old")]) == {"x-0": ""}


def test_who_may_not_read_claims_is_told_what_was_said_of_them(server: ApiServer, kit: Kit) -> None:
    of_claim(server, "data", "ProvisioningFailed", "no such class")
    server.plan(
        "GET .*/persistentvolumeclaims/.*",
        answer=(403, {"kind": "Status", "reason": "Forbidden", "message": "", "code": 403}),
    )
    told = stuck_pods(kit.target().api, [pod_of("data")])
    assert told == {"x-0": "claim data has no volume: ProvisioningFailed: no such class"}


def test_a_claim_of_which_nothing_is_said_says_nothing(server: ApiServer, kit: Kit) -> None:
    assert stuck_pods(kit.target().api, [POD]) == {"x-0": ""}
    server.plan("GET .*/events$", answer=(403, {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}))
    assert stuck_pods(kit.target().api, [POD]) == {}, "this user may not read events"


def test_a_pod_whose_place_another_one_has_taken_says_so_while_it_waits(server: ApiServer, kit: Kit) -> None:
    waits = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}]}
    where = {"namespace": "default", "generateName": "x-0-", "creationTimestamp": "2026-01-01T00:00:20Z"}
    pod = {"metadata": {"name": "x-0-b", **where}, "spec": {}, "status": waits}
    for name, about, time in (("a", "x-0-a", "10"), ("b", "x-1-a", "11"), ("c", "x-0-c", "30")):
        told: Any = {"reason": "Preempted", "message": f"Preempted by {name}", "involvedObject": {"name": about}}
        server.put("events", name, lastTimestamp=f"2026-01-01T00:00:{time}Z", **told)
    assert stuck_pods(kit.target().api, [pod]) == {"x-0-b": "Preempted: Preempted by a"}
    (asked,) = (one for one in server.requests if one.path.endswith("/events"))
    assert asked.query["fieldSelector"] == "involvedObject.kind=Pod,reason=Preempted"
    placed = {**pod, "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
    assert stuck_pods(kit.target().api, [placed]) == {}


def test_an_image_that_is_missing_is_told_although_another_address_refuses_later(server: ApiServer, kit: Kit) -> None:
    pull = 'Failed to pull image "r/x:1": failed to resolve reference "r/x:1": '
    for name, why, time in (("b", "403 Forbidden", "11"), ("a", "r/x:1: not found", "10"), ("c", "401", "12")):
        server.put("events", name, reason="Failed", message=pull + why, lastTimestamp=f"2026-01-01T00:00:{time}Z")
    waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image: ErrImagePull: {pull}403 Forbidden"}
    pod = {
        "metadata": {"name": "x-0", "namespace": "default", "uid": "7"},
        "spec": {},
        "status": {"containerStatuses": [{"name": "trainer", "state": {"waiting": waiting}}]},
    }
    assert stuck_pods(kit.target().api, [pod]) == {"x-0": f"ErrImagePull: {pull}r/x:1: not found"}
    beside = {**pod, "status": {"initContainerStatuses": [{"name": "fetch", "state": {"waiting": {**waiting}}}]}}
    assert stuck_pods(kit.target().api, [beside])["x-0"].startswith("init container fetch: ErrImagePull: Failed")
    waiting["message"] = f"{pull}r/x:1: not found"
    assert stuck_pods(kit.target().api, [pod]) == {}, "its status says so itself"


def test_what_is_said_of_a_pod_that_no_scheduler_has_looked_at(server: ApiServer, kit: Kit) -> None:
    server.put("events", "a", reason="FailedResourceClaimCreation", message="no such template")
    pod = {"metadata": {"name": "x-0", "namespace": "default", "uid": "7"}, "spec": {}, "status": {"phase": "Pending"}}
    assert stuck_pods(kit.target().api, [pod]) == {"x-0": "FailedResourceClaimCreation: no such template"}


def test_a_probe_is_told_of_pods_that_have_one_and_ended(server: ApiServer, kit: Kit) -> None:
    for name, message, time in (("a", "Liveness probe failed: refused", "10"), ("b", "Readiness probe failed", "11")):
        server.put("events", name, reason="Unhealthy", message=message, lastTimestamp=f"2026-01-01T00:00:{time}Z")
    state: dict[str, Any] = {"terminated": {"exitCode": 0}}
    pod = {
        "metadata": {"name": "x-0", "namespace": "default", "uid": "7"},
        "spec": {"containers": [{"name": "pytorch", "livenessProbe": {}}]},
        "status": {"containerStatuses": [{"name": "pytorch", "state": state}]},
    }
    assert stuck_pods(kit.target().api, [pod]) == {"x-0": "Unhealthy: Liveness probe failed: refused"}
    assert stuck_pods(kit.target().api, [{**pod, "spec": {"containers": [{"name": "pytorch"}]}}]) == {}
    state.clear()
    assert stuck_pods(kit.target().api, [pod]) == {}, "it runs"


def test_what_a_pod_lacked_before_its_image_was_pulled_is_over(server: ApiServer, kit: Kit) -> None:
    def says(reason: str, time: str, kind: str) -> None:
        server.put("events", reason.lower(), reason=reason, message="x", type=kind, lastTimestamp=f"2026-01-01T{time}Z")

    waiting = {"name": "pytorch", "state": {"waiting": {"reason": "ContainerCreating"}}}
    pod = {
        "metadata": {"name": "x-0", "namespace": "default", "uid": "7"},
        "spec": {},
        "status": {"phase": "Pending", "containerStatuses": [waiting]},
    }
    says("FailedMount", "00:00:10", "Warning")
    assert stuck_pods(kit.target().api, [pod]) == {"x-0": "FailedMount: x"}
    says("Pulling", "00:00:11", "Normal")
    assert stuck_pods(kit.target().api, [pod]) == {}
