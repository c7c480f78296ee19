"""A namespace's defaults for pods also apply to a job's pods."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base import names
from kitjob.names import DEFAULT_IMAGE
from tests.kitctl.rendered import Object
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

EVERYTHING_BUT_LOOKING = [
    {"verbs": ["create", "patch"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "apiGroups": ["batch", "kubeflow.org", "storage.k8s.io"], "resources": ["*"]},
    {"verbs": ["get"], "apiGroups": [""], "resources": ["services", "configmaps", "persistentvolumeclaims"]},
]


def pod(server: ApiServer) -> Object:
    spec: Object = server.store.get(Key("jobs.batch", "default", "run"))["spec"]["template"]["spec"]
    return spec


def limit_range(server: ApiServer, **item: dict[str, str]) -> None:
    server.put("limitranges", "limits", spec={"limits": [{"type": "Pod"}, {"type": "Container", **item}]})


@pytest.fixture
def registry(server: ApiServer) -> None:
    server.put("serviceaccounts", "default", imagePullSecrets=[{"name": "registry"}])


@pytest.mark.usefixtures("registry")
def test_a_private_image_is_pulled_with_the_default_accounts_secret(server: ApiServer, kit: Kit) -> None:
    kit.submit()
    assert pod(server)["serviceAccountName"] == "run", "the account has no pull secrets"
    assert pod(server)["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.usefixtures("registry")
def test_named_pull_secrets_replace_the_accounts(server: ApiServer, kit: Kit) -> None:
    kit("submit", "--name", "run", "--pull-secret", "mine", "--pull-secret", "ours")
    assert pod(server)["imagePullSecrets"] == [{"name": "mine"}, {"name": "ours"}]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("security", [{"serviceAccount": "trainers"}, {"reportStatus": False}])
def test_an_existing_account_adds_its_own_pull_secrets(server: ApiServer, kit: Kit, security: dict[str, Any]) -> None:
    server.put("serviceaccounts", "trainers")
    kit.submit(security=security)
    assert "imagePullSecrets" not in pod(server)


def test_unreadable_namespace_defaults_are_skipped(server: ApiServer, kit: Kit) -> None:
    server.users["token"] = User(rules=EVERYTHING_BUT_LOOKING)
    kit.submit()
    assert "imagePullSecrets" not in pod(server)


def test_requests_default_to_the_namespaces(server: ApiServer, kit: Kit) -> None:
    limit_range(server, default={"memory": "256Mi"}, defaultRequest={"memory": "128Mi", "ephemeral-storage": "1Gi"})
    kit.submit()
    assert pod(server)["containers"][0]["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}}


def test_the_jobs_resources_override_the_namespaces_defaults(server: ApiServer, kit: Kit) -> None:
    limit_range(server, defaultRequest={"memory": "128Mi", "cpu": "1"})
    kit.submit(resources={"requests": {"memory": "4Gi"}, "limits": {"cpu": "2"}})
    asked = pod(server)["containers"][0]["resources"]
    assert asked == {"requests": {"memory": "4Gi"}, "limits": {"cpu": "2"}}


def test_a_partial_submit_is_recognized_again(server: ApiServer, kit: Kit) -> None:
    """The defaults are part of the job's digest, so they must be read again."""
    limit_range(server, defaultRequest={"memory": "128Mi"})

    server.plan("POST .*/services$", answer=(403, {"kind": "Status", "message": "cannot"}))
    server.plan("DELETE .*/jobs/run", answer=(403, {"kind": "Status", "message": "cannot"}))
    kit("submit", "--name", "run", "--no-checks", exit_code=1)
    assert "continuing" in kit("submit", "--name", "run")


@pytest.mark.parametrize(
    ("defaults", "wanted", "expected"),
    [
        ({}, "auto", DEFAULT_IMAGE),
        ({"image": ""}, "auto", DEFAULT_IMAGE),
        ({"image": "team/torch:3"}, "auto", "team/torch:3"),
        ({"image": "team/torch:3"}, "mine:1", "mine:1"),
        ({"mirror": "registry.example/hub"}, "auto", f"registry.example/hub/{DEFAULT_IMAGE}"),
        ({"mirror": "registry.example/hub/"}, "mine:1", "registry.example/hub/mine:1"),
        ({"mirror": "registry.example/hub"}, "ghcr.io/mine:1", "ghcr.io/mine:1"),
        ({"mirror": "registry.example/hub"}, "localhost/mine", "localhost/mine"),
        ({"mirror": "registry.example/hub"}, "box:5000/mine", "box:5000/mine"),
        ({"mirror": "registry.example", "image": "ghcr.io/torch"}, "auto", "ghcr.io/torch"),
    ],
)
def test_an_administrator_sets_image_and_mirror(
    server: ApiServer, kit: Kit, defaults: dict[str, str], wanted: str, expected: str
) -> None:
    server.put("configmaps", names.NAMESPACE_DEFAULTS, data=defaults)
    kit.submit(image=wanted)
    assert pod(server)["containers"][0]["image"] == expected


def test_an_administrator_sets_pull_secrets(server: ApiServer, kit: Kit) -> None:
    server.put("configmaps", names.NAMESPACE_DEFAULTS, data={"imagePullSecrets": "one two"})
    kit.submit()
    assert pod(server)["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_submit_and_doctor_show_an_administrators_image(server: ApiServer, kit: Kit) -> None:
    server.put("configmaps", names.NAMESPACE_DEFAULTS, data={"image": "team/torch:3"})
    source = "the ConfigMap kitctl-defaults of namespace 'default'"
    assert f"team/torch:3, from {source}, is on no node yet" in kit("doctor", "--name", "run")
    assert f"image: team/torch:3, from {source}\n" in kit("submit", "--name", "first")
    assert "image: " not in kit("submit", "--name", "second", "--image", "mine:1")


def test_the_built_in_image_is_not_an_administrators(server: ApiServer, kit: Kit) -> None:
    server.put("configmaps", names.NAMESPACE_DEFAULTS, data={"imagePullSecrets": "one"})
    assert f"{DEFAULT_IMAGE} is on no node yet" in kit("doctor", "--name", "run")
    assert "kitctl-defaults" not in kit("submit", "--name", "run")
