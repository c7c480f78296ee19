"""The Secret of a run: created and deleted with it, never printed, and omitted without the right to create it."""

from __future__ import annotations

import base64

import pytest

from kitctl.base.errors import Unavailable, UsageError
from kitctl.targets import Change
from kitctl.targets.cluster.submit.run_secret import mask
from kitjob.names import SECRET_KEY
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key, Object

WITHOUT_SECRETS = [
    {"verbs": ["*"], "apiGroups": [group], "resources": resources}
    for group, resources in {
        "": ["configmaps", "persistentvolumeclaims", "serviceaccounts", "services", "pods", "events"],
        "batch": ["jobs"],
        "networking.k8s.io": ["networkpolicies"],
        "rbac.authorization.k8s.io": ["roles", "rolebindings"],
        "storage.k8s.io": ["storageclasses"],
    }.items()
]


def secret(server: ApiServer, name: str = "run") -> Object:
    return server.store.get(Key("secrets", "default", f"{name}-rendezvous"))


def value(server: ApiServer, name: str = "run") -> str:
    (key,) = secret(server, name)["data"].items()
    assert key[0] == SECRET_KEY
    return base64.b64decode(key[1]).decode()


@pytest.mark.parametrize("kind", ["IndexedJob", "PyTorchJob"])
def test_each_job_has_a_secret_that_is_deleted_with_it(server: ApiServer, kit: Kit, kind: str) -> None:
    kit.submit(kind=kind)
    kit.submit(kind=kind, name="other")
    assert len(value(server)) == len(value(server, "other")) == 64
    assert value(server) != value(server, "other")
    resource = "jobs.batch" if kind == "IndexedJob" else "pytorchjobs"
    job = server.store.get(Key(resource, "default", "run"))
    assert [owner["uid"] for owner in secret(server)["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    kit("delete", "run", "--yes")
    assert Key("secrets", "default", "run-rendezvous") not in server.store.objects


def test_a_continued_submit_keeps_the_secret(server: ApiServer, kit: Kit) -> None:
    server.plan("(PATCH|DELETE) .*/jobs/run$", times=99, lost="before")  # the release
    target = kit.target()
    target.retry_seconds = 0
    with pytest.raises(Unavailable):
        target.submit(kit.submission())
    before = value(server)
    server.faults.clear()
    kit.submit()
    assert value(server) == before


def test_its_value_is_never_printed(server: ApiServer, kit: Kit) -> None:
    output = kit("submit", "--name", "run", "--nodes", "2")
    output += kit("diff", "--name", "run", "--nodes", "2", "--image", "other:1", exit_code=1)
    output += kit("submit", "--name", "run", "--nodes", "2", "--replace", "--dry-run=server", "-o", "yaml")
    output += kit("status", "run", "-o", "json") + kit("doctor", "run")
    output += "".join(str(one) for key, one in server.store.objects.items() if key.resource != "secrets")
    assert value(server) not in output
    assert base64.b64encode(value(server).encode()).decode() not in output


def test_a_diff_of_a_secret_shows_no_values() -> None:
    before = {"kind": "Secret", "data": {"key": "c2VjcmV0"}}
    shown = mask(Change(before=before, after={"kind": "Secret", "data": {"key": "b3RoZXI="}}))
    assert (shown.before, shown.after) == ({"kind": "Secret", "data": {"key": "***"}},) * 2
    other = Change(before=None, after={"kind": "ConfigMap", "data": {"key": "text"}})
    assert mask(other) == other
    assert mask(Change(before=None, after={"kind": "Secret"})).after == {"kind": "Secret"}


def test_without_the_right_to_secrets_there_is_a_warning_or_an_error(server: ApiServer, kit: Kit) -> None:
    server.users["token"] = User(rules=WITHOUT_SECRETS)
    output = kit("submit", "--name", "run", "--nodes", "2", "--no-checks")
    assert "you may not create Secrets in namespace 'default': anyone who can reach node 0" in output
    pod = server.store.get(Key("jobs.batch", "default", "run"))["spec"]["template"]["spec"]
    assert "secret" not in {volume["name"] for volume in pod["volumes"]}
    rules = server.store.get(Key("roles", "default", "run"))["rules"]
    assert [rule["resources"] for rule in rules] == [["configmaps"]], "a user cannot grant a right that they lack"
    with pytest.raises(UsageError, match=r"security\.rendezvousSecret: require, and you may not create Secrets"):
        kit.submit(name="strict", security={"rendezvousSecret": "require"})
    assert Key("jobs.batch", "default", "strict") not in server.store.objects
