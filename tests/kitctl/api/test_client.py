"""The Python API, against a fake API server and with local jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kitctl import Client, JobSpec, load
from kitctl.api.job import _unfinished
from kitctl.base.errors import ConflictError, JobNotFound, NotFound, SpecError, UsageError
from kitctl.state.phase import Phase
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


@pytest.mark.slow
def test_a_script_above_the_folder_runs_here_and_files_may_be_texts(client: Client, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    client = Client(target="local")
    job = client.submit(JobSpec(command=("../hello.py",)), folder=str(tmp_path / "below"))
    assert job.wait(timeout=120).phase == "Succeeded"
    assert job.logs(rank=0) == "[rank 0]: hello" == job.logs(rank=np.int64(0))  # type: ignore[arg-type]
    for number in ({"rank": "0"}, {"tail": 2.5}, {"rank": True}):
        with pytest.raises(UsageError, match="is no whole number"):
            job.logs(**number)
    with pytest.raises(UsageError, match="timeout: '60' is no number of seconds"):
        job.wait(timeout="60")  # type: ignore[arg-type]
    assert "ended" in job.events()
    assert "training" in job.goodput()
    assert job.why().cause == ""
    job.delete(snapshots=True)


def test_a_script_above_the_folder_is_not_sent_to_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with ApiServer() as server:
        client = Client(kubeconfig=str(server.kubeconfig(tmp_path, token="token")), notify=lambda _: None)
        with pytest.raises(SpecError, match=r"or send one: --workdir \.\. -- train\.py"):
            client.submit(JobSpec(command=("../train.py",)), checks=False)


def test_a_job_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: one\nnodes: 2\n")
    assert load(str(tmp_path / "job.yaml")).nodes == 2


def train() -> None:
    """What somebody may try to submit."""


@pytest.mark.parametrize(
    ("given", "what"),
    [(train, "function"), ("train.py", "str"), ({"command": ["train.py"]}, "dict"), (JobSpec, "type")],
)
def test_what_is_no_job_is_refused_with_what_one_is(client: Client, given: Any, what: str) -> None:
    for ask in (client.submit, client.check, client.preview, client.send_code):
        with pytest.raises(UsageError, match=f"a job is a JobSpec, and no {what}") as caught:
            ask(given)
        assert "kitctl.load('job.yaml')" in caught.value.fix
        assert ("write it to a script" in caught.value.fix) == callable(given)


@pytest.mark.parametrize(
    ("phase", "fix"),
    [
        ("Suspended", "to continue it: kitctl resume run"),
        ("Queued", "what it waits for: kitctl why run"),
        ("Running", "it is still running: kitctl status run"),
    ],
)
def test_what_to_do_about_a_job_that_has_not_ended_in_time(phase: Phase, fix: str) -> None:
    assert _unfinished("run", phase) == fix
