"""Run ids are made unique with the uid of the object that owns the pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.agent.setup.run_identity import with_run_uid
from kittrain.job.env import NodeEnv, node_env
from kittrain.system import apiserver
from kittrain.system.apiserver import ApiError
from tests.trainer.kubernetes import ApiServer

OWNER = "apis/kubeflow.org/v1/pytorchjobs/job"
PATH = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/job"


def identify(account: Path, owner: str = OWNER) -> tuple[NodeEnv, str, list[str]]:
    logged: list[str] = []
    environ = {"PET_RDZV_ID": "job-1234", "KIT_OWNER": owner}
    node = with_run_uid(node_env(environ), environ, logged.append, apiserver.ApiServer(account=account))
    return node, environ["PET_RDZV_ID"], logged


def test_a_manifest_applied_twice_is_two_runs(server: ApiServer, tmp_path: Path) -> None:
    runs = []
    for uid in ("aaaa-1", "bbbb-2"):
        server.objects[PATH] = {"metadata": {"uid": uid}}
        node, run_id, logged = identify(tmp_path)
        assert (node.run.owner, run_id, logged) == ("", node.run_id, [])
        runs.append(node.run_id)
    assert runs == ["job-1234-aaaa-1", "job-1234-bbbb-2"]


def test_without_access_to_the_owner_the_run_id_stays(server: ApiServer, tmp_path: Path) -> None:
    server.objects[PATH] = {}
    server.status = 403
    node, run_id, logged = identify(tmp_path)
    assert (node.run.owner, node.run_id, run_id) == (OWNER, "job-1234", "job-1234")
    assert "the run id is not unique: another run of this job looks the same" in logged[0]


def test_a_server_that_does_not_answer_is_an_error(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "RETRY_TIMEOUT", 0.0)
    server.objects[PATH] = {}
    server.status = 503
    with pytest.raises(ApiError, match="503"):
        identify(tmp_path)


def test_without_an_owner_the_server_is_not_used(tmp_path: Path) -> None:
    assert identify(tmp_path, owner="")[1:] == ("job-1234", [])
