"""A job's snapshots in an S3 bucket: the folder is lost, and another machine goes on from the bucket."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from kitctl.targets.local.folder import state_home
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.writing import read_index
from kittrain.rank.world.order import Order
from tests.exact import assert_each_sample_counts_once, undisturbed
from tests.local.test_metrics import free_port, samples, until
from tests.s3 import S3, serving

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first one may build the server

ORDER = Order(samples=512, batch=16, seed=0)
EPOCHS = 6
TOY = ("-m", "kittrain.workloads.toy", str(EPOCHS), "--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch))
SLOWLY = ("--step-time", "0.05")
FAILED, INVALID = 100, 2
URL = "s3://snapshots/team/job"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        server.bucket("snapshots")
        yield server


@pytest.fixture
def reached(s3: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, with its credentials in the environment."""
    for name, value in s3.environ().items():
        monkeypatch.setenv(name, value)
    return s3


def lose_everything(kit: Kit, name: str) -> None:
    """All processes of a job die at once, and its files are gone: as if its cluster were."""
    folder = os.fsencode(kit.job(name).path)
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes()
            if b"targets.local.supervisor" in line and folder in line:
                os.kill(int(file.parent.name), signal.SIGKILL)
    kit.kill(name, 0, 1)
    shutil.rmtree(state_home())


def assert_the_bucket_is_seen(kit: Kit) -> None:
    """What the commands about snapshots say of the bucket alone."""
    steps = EPOCHS * ORDER.samples // ORDER.batch
    listed = json.loads(kit.run("snapshots", "list", URL, "-o", "json"))["items"]
    assert listed[0]["step"] == steps
    assert {one["condition"] for one in listed} == {"whole"}
    verified = json.loads(kit.run("snapshots", "verify", URL, "-o", "json"))["items"]
    assert {one["condition"] for one in verified} == {"verified"}
    assert "1x20    float32" in kit.run("snapshots", "show", URL)
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", URL)
    kit.run("snapshots", "export", URL, "-o", str(kit.folder / "weights.pt"))
    assert torch.load(kit.folder / "weights.pt", weights_only=True).keys() == {"weight", "bias"}
    assert "is pruned by the run that writes it" in kit.run("snapshots", "prune", URL, "--keep", "1", exit_code=1)
    assert "nothing was copied there" in kit.run("snapshots", "list", f"{URL}/other", exit_code=1)


def assert_a_rehearsal_disturbs_nobody(kit: Kit, words: tuple[str, ...], where: tuple[str, ...]) -> None:
    """A copy of the prefix is continued by another job; the run that wrote the prefix still has it."""
    there, copy = Store(URL), Store(f"{URL}-rehearsed")
    owner = read_index(there)
    for key in there.list(""):
        copy.put(key, (there.read(key) or (b"",))[0])
    kit.run("submit", "--name", "rehearsal", *where, "--continue", copy.url, "--wait", *words)
    assert f"comes from {copy.url}" in kit.run("logs", "rehearsal")
    assert read_index(there) == owner
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", copy.url)


@pytest.mark.wide
@pytest.mark.usefixtures("reached")
def test_another_cluster_goes_on_exactly_where_a_lost_one_was(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "records"
    words = (*TOY, "--step-time", "0.05", "--record", str(records))
    where = ("--nodes", "2", "--snapshot-every", "20")
    kit.run("submit", "--name", "first", *where, "--set", f"snapshots.mirror={URL}", *words)
    job = kit.until("first", lambda job: job["mirror"] and (job["mirror"]["step"] or 0) >= 40)
    assert job["mirror"]["url"] == URL
    lose_everything(kit, "first")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    kit.run("submit", "--name", "second", *where, "--continue", URL, "--wait", *words)
    assert "resuming after step" in kit.run("logs", "second")
    assert_each_sample_counts_once(kit.snapshots("second"), records, ORDER, epochs=EPOCHS)
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", "second")
    assert_the_bucket_is_seen(kit)
    assert_a_rehearsal_disturbs_nobody(kit, words, where)
    alone = undisturbed(TOY, tmp_path, ranks=2)
    ours, theirs = (torch.load(at / "model.pt", weights_only=True) for at in (kit.snapshots("second"), alone))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.usefixtures("reached")
def test_a_mirror_that_cannot_be_used_ends_the_job_before_a_rank_starts(kit: Kit) -> None:
    words = ("--set", "policy.maxRestarts=0", "--wait", *TOY)
    nowhere = ("submit", "--name", "lost", "--set", "snapshots.mirror=s3://nowhere/run")
    refusal = kit.run(*nowhere, *words, exit_code=INVALID)
    assert "s3://nowhere/run: the bucket does not exist (NoSuchBucket)\n" in refusal
    assert not (state_home() / "jobs" / "default" / "lost").exists()
    output = kit.run(*nowhere, "--no-checks", *words, exit_code=FAILED)
    assert "the bucket does not exist (NoSuchBucket); fix: create it, or correct snapshots.mirror" in output
    assert "training with" not in kit.run("logs", "lost")

    kit.run("submit", "--name", "owner", "--set", f"snapshots.mirror={URL}-2", *words)
    page = kit.run("status", "owner")
    assert f"in {URL}-2" in page
    other = ("submit", "--name", "other", "--set", f"snapshots.mirror={URL}-2", "--no-checks")
    output = kit.run(*other, *words, exit_code=FAILED)
    assert "is that of run " in output
    assert f"fix: choose another prefix, or continue that run with this job: kitctl submit --continue {URL}-2" in output


@pytest.mark.wide
def test_a_store_that_goes_away_costs_no_step_and_is_told(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "s3") as server:
        server.bucket("snapshots")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        where = ("--snapshot-every", "20", "--set", f"snapshots.mirror={URL}")
        port = free_port()
        kit.run("submit", "--name", "alone", *where, "--metrics", "--set", f"metrics.port={port}", *TOY, *SLOWLY)
        there = until(lambda: samples(port), lambda found: found.get("mirror_step"))
        assert (there["mirror_up"], there["mirror_uploaded_bytes_total"] > 0) == (1, True)
    until(lambda: samples(port), lambda found: found["mirror_up"] == 0 and found["mirror_lag_seconds"] > 0)
    kit.run("wait", "alone")
    job = kit.status("alone")
    assert job["phase"] == "Succeeded"
    assert job["progress"]["step"] == EPOCHS * ORDER.samples // ORDER.batch
    assert job["mirror"]["behind"] > 0
    assert "does not answer" in job["mirror"]["warning"]
    assert "not yet; warning: s3://snapshots/team/job does not answer" in kit.run("status", "alone")
    assert "does not have everything: its newest snapshot is of step" in kit.run("logs", "alone")
