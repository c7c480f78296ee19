"""A report and a bundle of a job on a cluster: what the API server has, and no secret."""

from __future__ import annotations

import json
import tarfile
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from kitctl.base import names
from kitctl.kinds import KINDS, train_job
from kitctl.kinds.indexed_job import INDEX
from kitjob import timeline
from kitjob.names import HISTORY_KEY
from kitjob.record import replace
from tests.kitctl.localjobs import PAST
from tests.kitctl.targets.cluster.objectstore import Key

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kitctl.targets.cluster.apiserver import ApiServer
    from tests.kitctl.targets.cluster.clients import Kit

SECRET: Final = "planted-value-of-a-variable"
NO_CLAIM: Final[dict[str, Any]] = {"snapshots": {"enabled": False}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        files = {one.name.partition("/")[2]: tar.extractfile(one) for one in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def start(server: ApiServer, kit: Kit) -> None:
    """A job with a pod that has logged its variable, and an event about it."""
    kit.submit(**NO_CLAIM, env={"HF_TOKEN": SECRET}, args=["--password", "planted-argument"])
    labels = {
        names.LABEL_NAME: names.APP_NAME,
        names.LABEL_COMPONENT: "trainer",
        names.LABEL_INSTANCE: "run",
        INDEX: "0",
    }
    running = {
        "name": names.CONTAINER,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "imageID": "sha256:7",
    }
    status = {"phase": "Running", "containerStatuses": [running]}
    pod = server.put(
        "pods",
        "run-0",
        metadata={"labels": labels},
        spec={"nodeName": "machine-1", "containers": [{"name": names.CONTAINER}]},
        status=status,
    )
    server.logs["run-0"] = [f"2026-01-01T00:00:00.000000000Z [rank 0]: I have {SECRET}"]
    about = {"uid": pod["metadata"]["uid"], "name": "run-0"}
    event = {"type": "Normal", "reason": "Pulled"}
    server.put("events", "ours", involvedObject=about, message="Pulled image", **event)
    server.put("events", "theirs", involvedObject={"uid": "x", "name": "y"}, message="not ours", **event)
    job = server.store.objects[Key("jobs.batch", "default", "run")]
    later = datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp() - 100.0
    lines = timeline.content(replace(one, time=getattr(one, "time", 0.0) + later) for one in PAST).decode()
    told = {"data": {HISTORY_KEY: f'{{"run":"r"}}\n{lines}'}}
    server.store.patch(Key("configmaps", "default", names.status_name("run")), told, apply=False)


def test_a_bundle_has_the_jobs_objects_and_no_secret(server: ApiServer, kit: Kit, folder: Path) -> None:
    start(server, kit)
    assert "cluster/job.yaml" in kit("bundle", "run")
    found = members(folder / "run-bundle.tar.gz")
    assert yaml.safe_load(found["cluster/job.yaml"])["metadata"]["name"] == "run"
    assert yaml.safe_load(found["cluster/pods/run-0.yaml"])["spec"]["nodeName"] == "machine-1"
    assert [one["message"] for one in yaml.safe_load(found["cluster/events.yaml"])] == ["Pulled image"]
    assert "[rank 0]: I have [redacted]" in found["logs/node-0.log"]
    assert json.loads(found["environment.json"])["machines"] == "machine-1"
    assert not [name for name, text in found.items() if SECRET in text or "planted-argument" in text]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainer", ["image", "travels"])
def test_the_settings_have_the_script_and_not_what_starts_it(
    kit: Kit, server: ApiServer, folder: Path, kind: str, trainer: str
) -> None:
    metadata = {"labels": {"kitctl.dev/runtime": "1"}}
    server.put("clustertrainingruntimes", train_job.RUNTIME, "", metadata=metadata)
    kit.submit(**NO_CLAIM, kind=kind, trainer=trainer, command=["-m", "package.train"], args=["--to", "$HOME", "--"])
    kit("bundle", "run")
    settings = yaml.safe_load(members(folder / "run-bundle.tar.gz")["settings.yaml"])
    assert settings["args"] == ["-m", "package.train", "--to", "$HOME", "--"]


def test_a_job_without_snapshots_reports_no_step_of_one(server: ApiServer, kit: Kit, folder: Path) -> None:
    start(server, kit)
    report = {"run": "run", "round": 1, "formed": 1.0, "progress": {"step": 9, "snapshotStep": 0}}
    told = {"data": {"report": json.dumps(report)}}
    server.store.patch(Key("configmaps", "default", names.status_name("run")), told, apply=False)
    kit("report", "run", "-o", "page.html")
    page = (folder / "page.html").read_text("utf-8")
    assert "<dt>Step</dt>" in page
    assert "<dt>Snapshot</dt>" not in page


def test_a_report_of_a_job_on_a_cluster(server: ApiServer, kit: Kit, folder: Path) -> None:
    start(server, kit)
    kit("report", "run", "-o", "page.html")
    page = (folder / "page.html").read_text("utf-8")
    for text in ("machine-1", "Curves", "sha256:7", "Where the time went"):
        assert text in page
    assert SECRET not in page


def test_what_a_user_may_not_read_is_missing_with_its_reason(server: ApiServer, kit: Kit, folder: Path) -> None:
    start(server, kit)
    server.plan("GET .*/events", times=9, answer=(403, {"reason": "Forbidden", "message": "events is forbidden"}))
    kit("bundle", "run")
    assert "cannot be read" in members(folder / "run-bundle.tar.gz")["cluster/events.yaml.txt"]
