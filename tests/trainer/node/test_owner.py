"""Which run it is: told apart by the uid of what its pods belong to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.env import NodeEnv, node_env
from kittrain.node.owner import identified
from kittrain.system import apiserver
from kittrain.system.apiserver import ApiError
from tests.trainer.kubernetes import ApiServer

OWNER = "apis/kubeflow.org/v1/pytorchjobs/job"
PATH = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/job"


def ask(account: Path, owner: str = OWNER) -> tuple[NodeEnv, str, list[str]]:
    said: list[str] = []
    environ = {"PET_RDZV_ID": "job-1234", "KIT_OWNER": owner}
    node = identified(node_env(environ), environ, said.append, apiserver.ApiServer(account=account))
    return node, environ["PET_RDZV_ID"], said


def test_an_object_that_was_applied_twice_is_two_runs(server: ApiServer, tmp_path: Path) -> None:
    runs = []
    for uid in ("aaaa-1", "bbbb-2"):
        server.objects[PATH] = {"metadata": {"uid": uid}}
        node, told, said = ask(tmp_path)
        assert (node.owner, told, said) == (None, node.run_id, [])
        runs.append(node.run_id)
    assert runs == ["job-1234-aaaa-1", "job-1234-bbbb-2"]


def test_where_the_owner_cannot_be_read_the_run_is_what_it_was_called(server: ApiServer, tmp_path: Path) -> None:
    server.objects[PATH] = {}
    server.status = 403
    node, told, said = ask(tmp_path)
    assert (node.owner, node.run_id, told) == (OWNER, "job-1234", "job-1234")
    assert "a further run of this job cannot be told from this one" in said[0]


def test_a_server_that_does_not_answer_does_not_make_one_node_go_by_another_name(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "PATIENCE", 0.0)
    server.objects[PATH] = {}
    server.status = 503
    with pytest.raises(ApiError, match="503"):
        ask(tmp_path)


def test_where_the_cluster_says_which_run_it_is_nobody_is_asked(tmp_path: Path) -> None:
    assert ask(tmp_path, owner="")[1:] == ("job-1234", [])
