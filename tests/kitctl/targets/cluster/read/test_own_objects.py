"""Objects of a job that are gone, if a node or a pod says that it lacks them."""

from __future__ import annotations

import json

import pytest

from kitctl.targets.cluster.read import own_objects
from kitjob.names import PREPARING_KEY
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Object

NO_NAME = "waiting for node 0 at run-0.run.team.svc.cluster.local:29400 ([Errno -2] Name or service not known)"
OF_A_POD = "waiting for node 0 at run-worker-0:29400 ([Errno -3] Temporary failure in name resolution)"
NO_SECRET = (
    "waiting for the rendezvous of this run at run-0.run:29400 (node 0 has the run's secret, and this node has none)"
)
DENIED = (403, {"kind": "Status", "reason": "Forbidden", "message": "", "code": 403})
JOB: Object = {"metadata": {"name": "run", "namespace": "default"}}


def status(what: str) -> dict[str, object]:
    return {"data": {f"{PREPARING_KEY}1": json.dumps({"pod": "run-1-x", "since": 1.0, "what": what})}}


def unmounted(kind: str, name: str) -> dict[str, str]:
    return {"run-1-x": f'FailedMount: MountVolume.SetUp failed for volume "v" : {kind} "{name}" not found'}


@pytest.mark.parametrize(("what", "service"), [(NO_NAME, "run"), (OF_A_POD, "run-worker-0")])
def test_a_service_that_is_gone_is_told_of_the_node_that_needs_it(
    server: ApiServer, kit: Kit, what: str, service: str
) -> None:
    told = own_objects.missing(kit.target().api, JOB, status(what), {})
    name = "run-0" if what == NO_NAME else service
    assert told == {"run-1-x": f"the Service {service} is gone: node 1 cannot resolve node 0's name {name}"}
    server.put("services", service)
    assert own_objects.missing(kit.target().api, JOB, status(what), {}) == {}


def test_a_secret_that_is_gone_is_told_of_the_node_that_has_none(server: ApiServer, kit: Kit) -> None:
    told = own_objects.missing(kit.target().api, JOB, status(NO_SECRET), {})
    assert told == {
        "run-1-x": "the Secret run-rendezvous is gone: node 0 has the run's secret, and node 1 has none",
    }
    server.put("secrets", "run-rendezvous")
    assert own_objects.missing(kit.target().api, JOB, status(NO_SECRET), {}) == {}


@pytest.mark.parametrize("name", ["run-sources", "run-requirements", "run-trainer", "run-trainer-2"])
def test_what_was_made_with_the_job_is_told_from_what_its_user_names(server: ApiServer, kit: Kit, name: str) -> None:
    api = kit.target().api
    (told,) = own_objects.missing(api, JOB, None, unmounted("configmap", name)).values()
    assert told.startswith(f"the ConfigMap {name}, which was made with the job, is gone: FailedMount: ")
    for other in ("my-sources", "sources", f"{name}-x"):
        assert own_objects.missing(api, JOB, None, unmounted("configmap", other)) == {}
    server.put("configmaps", name)
    assert own_objects.missing(api, JOB, None, unmounted("configmap", name)) == {}, "it is there again"


def test_nothing_is_asked_unless_something_is_not_found(server: ApiServer, kit: Kit) -> None:
    for one in (None, status("waiting for node 0 at run-0.run:29400 (timed out)"), status("installing requirements")):
        assert own_objects.missing(kit.target().api, JOB, one, {"run-0-x": "FailedMount: timed out"}) == {}
    asked = [one.path for one in server.requests]
    assert not [one for one in asked if "/services" in one or "/secrets" in one or "/configmaps/" in one]


@pytest.mark.parametrize("what", [NO_NAME, NO_SECRET])
def test_who_may_not_read_objects_is_told_nothing_of_them(server: ApiServer, kit: Kit, what: str) -> None:
    server.plan("GET .*/(services|secrets)/.*", answer=DENIED)
    assert own_objects.missing(kit.target().api, JOB, status(what), {}) == {}
