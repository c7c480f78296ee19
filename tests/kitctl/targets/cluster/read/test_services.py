"""The Service of a job that is gone, if a node says that it cannot resolve a name."""

from __future__ import annotations

import json

import pytest

from kitctl.targets.cluster.read import services
from kitjob.names import PREPARING_KEY
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit

NO_NAME = "waiting for node 0 at run-0.run.team.svc.cluster.local:29400 ([Errno -2] Name or service not known)"
OF_A_POD = "waiting for node 0 at run-worker-0:29400 ([Errno -3] Temporary failure in name resolution)"


def status(what: str) -> dict[str, object]:
    return {"data": {f"{PREPARING_KEY}1": json.dumps({"pod": "run-1-x", "since": 1.0, "what": what})}}


@pytest.mark.parametrize(("what", "service"), [(NO_NAME, "run"), (OF_A_POD, "run-worker-0")])
def test_a_service_that_is_gone_is_told_of_the_node_that_needs_it(
    server: ApiServer, kit: Kit, what: str, service: str
) -> None:
    told = services.missing(kit.target().api, "default", status(what))
    name = "run-0" if what == NO_NAME else service
    assert told == {"run-1-x": f"the Service {service} is gone: node 1 cannot resolve node 0's name {name}"}
    server.put("services", service)
    assert services.missing(kit.target().api, "default", status(what)) == {}


def test_nothing_is_asked_unless_a_name_is_not_resolved(server: ApiServer, kit: Kit) -> None:
    for one in (None, status("waiting for node 0 at run-0.run:29400 (timed out)"), status("installing requirements")):
        assert services.missing(kit.target().api, "default", one) == {}
    assert not [one for one in server.requests if "/services" in one.path]


def test_who_may_not_read_services_is_told_nothing_of_them(server: ApiServer, kit: Kit) -> None:
    server.plan(
        "GET .*/services/.*", answer=(403, {"kind": "Status", "reason": "Forbidden", "message": "", "code": 403})
    )
    assert services.missing(kit.target().api, "default", status(NO_NAME)) == {}
