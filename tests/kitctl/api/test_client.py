"""The Python API, against a fake API server and with local jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kitctl import Client, JobSpec
from kitctl.base.errors import ConflictError, JobNotFound, NotFound, UsageError
from tests.kitctl.localjobs import ended_job
from tests.kitctl.targets.cluster.apiserver import ApiServer


@pytest.fixture(name="client")
def _client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.py").write_text("print('hello')\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Client(target="local")


@pytest.mark.slow
def test_a_local_job_from_submit_to_delete(client: Client) -> None:
    job = client.submit(JobSpec(command=("hello.py",)))
    assert (job.name, job.namespace) == ("hello", "default")
    assert job.wait(timeout=120).phase == "Succeeded"
    assert "[rank 0]: hello" in [line.text for line in job.lines()]
    assert [one.name for one in client.jobs()] == ["hello"]
    with pytest.raises(ConflictError, match="already exists"):
        client.submit(JobSpec(command=("hello.py",)))
    job.delete()
    with pytest.raises(NotFound):
        job.state()


def test_a_cluster_job_is_in_the_contexts_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ApiServer() as server:
        client = Client(kubeconfig=server.kubeconfig(tmp_path, token="token"), notify=lambda _: None)
        job = client.submit(JobSpec(name="run"), checks=False)
        assert job.namespace == client.namespace
        assert job.state().phase == "Pending"
        job.cancel()
        assert job.state().phase == "Cancelled"


def test_a_target_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no target 'nowhere'"):
        Client(target="nowhere")


def test_a_local_job_that_there_is_not_leads_to_one_that_there_is() -> None:
    ended_job("run")
    with pytest.raises(JobNotFound, match=r"did you mean run\?"):
        Client(target="local").job("rnu").state()


def test_a_job_that_the_cluster_has_not_leads_to_one_that_it_has(tmp_path: Path) -> None:
    with ApiServer() as server:
        client = Client(kubeconfig=server.kubeconfig(tmp_path, token="token"), notify=lambda _: None)
        client.submit(JobSpec(name="run"), checks=False)
        with pytest.raises(JobNotFound, match=r"did you mean run\?"):
            client.job("rnu").wait()


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, kitctl; print(sorted(name for name in sys.modules if name.startswith('kitctl')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['kitctl']\n"
