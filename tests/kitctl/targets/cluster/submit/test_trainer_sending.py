"""The ConfigMap with the trainer: who owns it, and what another one of its name means."""

from __future__ import annotations

from typing import Any

import pytest

import kitctl
from kitctl.base import names
from kitctl.base.errors import ConflictError
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import SENT, Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object

assert SENT.trainer
NAME = names.shared_trainer_name(kitctl.__version__, SENT.trainer.digest)


def trainer(server: ApiServer) -> Object:
    return server.store.get(Key("configmaps", "default", NAME))


def owners(server: ApiServer) -> list[str]:
    return [one["name"] for one in trainer(server)["metadata"]["ownerReferences"]]


def test_all_jobs_of_a_namespace_share_it_and_own_it(server: ApiServer, kit: Kit) -> None:
    for name in ("a", "b", "c"):
        kit.submit(name=name)
    assert owners(server) == ["a", "b", "c"]
    assert trainer(server)["immutable"] is True
    assert names.LABEL_INSTANCE not in trainer(server)["metadata"]["labels"], "it belongs to no job"
    for name in ("a", "b", "c"):
        job = server.store.get(Key("jobs.batch", "default", name))
        volumes = {one["name"]: one for one in job["spec"]["template"]["spec"]["volumes"]}
        assert volumes["trainer"]["projected"]["sources"] == [{"configMap": {"name": NAME}}]


def test_a_job_whose_image_has_the_trainer_needs_none(server: ApiServer, kit: Kit) -> None:
    kit("submit", "--name", "run", "--trainer", "image")
    assert NAME not in server.names("configmaps")


def test_it_is_sent_once(server: ApiServer, kit: Kit) -> None:
    kit.submit(name="a")
    server.requests.clear()
    kit.submit(name="b")
    assert [one for one in server.written() if NAME in one] == [f"PATCH /api/v1/namespaces/default/configmaps/{NAME}"]


def test_two_jobs_that_come_at_once_both_own_it(server: ApiServer, kit: Kit) -> None:
    kit.submit(name="a")
    server.plan(f"PATCH .*/configmaps/{NAME}", before=lambda: kit.submit(name="c"))
    kit.submit(name="b")
    assert sorted(owners(server)) == ["a", "b", "c"]


def test_it_is_made_again_if_its_last_owner_goes_meanwhile(server: ApiServer, kit: Kit) -> None:
    kit.submit(name="a")
    server.plan(
        f"PATCH .*/configmaps/{NAME}", before=lambda: server.store.objects.pop(Key("configmaps", "default", NAME))
    )
    kit.submit(name="b")
    assert owners(server) == ["b"]


@pytest.mark.parametrize("change", [{"binaryData": {"bootstrap.py": "aGk="}}, {"metadata": {"labels": {}}}])
def test_another_object_of_its_name_is_not_used(server: ApiServer, kit: Kit, change: dict[str, Any]) -> None:
    kit.submit(name="a")
    found = server.store.objects[Key("configmaps", "default", NAME)]
    found |= {key: value for key, value in change.items() if key != "metadata"}
    found["metadata"] |= change.get("metadata", {})
    with pytest.raises(ConflictError, match=NAME):
        kit.submit(name="b")
    assert "b" not in server.names("jobs.batch"), "nothing stays"
