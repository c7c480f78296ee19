"""A folder that is sent with a job: in a ConfigMap or to the claim, and the same for a pod that comes hours later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from kitctl.render import objects as render
from tests.charts.helm import rendered
from tests.cluster.commands import job, kitctl, status
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import SHARED, TRAINER_IMAGE
from tests.cluster.kubectl import get, kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]

SCRIPT = """
import hashlib, os, pathlib, sys, time
import model
pathlib.Path("snapshot.pt").write_text("written")
if pathlib.Path("shared").is_dir():
    pathlib.Path("shared", os.environ["RANK"] + ".pt").touch()
noise = hashlib.sha256(pathlib.Path("data/noise.bin").read_bytes()).hexdigest()
print(f"rank {os.environ['RANK']} version {model.VERSION} noise {noise} in {os.getcwd()}", flush=True)
time.sleep(float(sys.argv[1]))
"""
SMALL, LARGE = 1000, 3 << 20


def project(folder: Path, size: int) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "model.py").write_text("VERSION = 1\n")
    (folder / "data" / "noise.bin").write_bytes(os.urandom(size))
    for number in range(20):
        (folder / "data" / f"{number}.txt").write_text("x" * number)


def submitted(namespace: str, name: str, folder: Path, seconds: int, *words: str) -> str:
    return kitctl(
        *("submit", *job(name, namespace), "--nodes", "2", "--workdir", str(folder)),
        *(*words, "--", "train.py", str(seconds)),
    )


@pytest.mark.wide
@pytest.mark.parametrize("size", [pytest.param(SMALL, marks=pytest.mark.long), LARGE])
def test_a_replacement_gets_the_submitted_files_even_if_the_folder_has_changed(
    namespace: str, tmp_path: Path, size: int
) -> None:
    folder = tmp_path / "project"
    project(folder, size)
    output = submitted(namespace, "run", folder, 30)
    where = "ConfigMap run-sources" if size == SMALL else "claim run-snapshots"
    assert "23 files (" in output
    assert f"of {folder} sent to {where}" in output
    until(lambda: kitctl("logs", "run", "-n", namespace).count("version 1") == 2)
    (folder / "model.py").write_text("VERSION = 2\n")
    pod = next(one for one in status("run", namespace)["nodes"] if one["index"] == 1)["pod"]
    kubectl("delete", "pod", "-n", namespace, pod, "--wait=false", "--grace-period=0", "--force")
    until(lambda: kitctl("logs", "run", "-n", namespace).count("rank 1 version 1") == 2)
    kitctl("wait", "run", "-n", namespace)
    logs = kitctl("logs", "run", "-n", namespace)
    assert "version 2" not in logs
    assert "in /workspace" in logs


@pytest.mark.wide
def test_only_what_has_changed_is_sent_again(namespace: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    project(folder, LARGE)
    assert "the claim had" not in submitted(namespace, "run", folder, 0)
    kitctl("wait", "run", "-n", namespace)
    (folder / "model.py").write_text("VERSION = 2\n")
    output = submitted(namespace, "run", folder, 0, "--replace")
    assert "the claim had all but 1 of them (12 B)" in output
    kitctl("wait", "run", "-n", namespace)
    assert "version 2" in kitctl("logs", "run", "-n", namespace)


def test_a_large_folder_without_a_claim_is_rejected_before_anything_is_created(namespace: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    project(folder, LARGE)
    words = ("--set", "snapshots.enabled=false", "--workdir", str(folder), "--", "train.py", "0")
    output = kitctl("submit", *job("run", namespace), *words, exit_code=2)
    assert "more than a ConfigMap can have (900 KiB, packed); the largest files: data/noise.bin (3 MiB)" in output
    assert "The job has no claim that it could be sent to" in output
    assert not get(namespace, "jobs,services,serviceaccounts,pvc")["items"][1:], "but the default service account"


@pytest.mark.long  # so can those of the other tests
def test_a_script_alone_can_write_files_too(namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib\npathlib.Path('snapshot.pt').write_text('x')\nprint('written')\n"
    )
    monkeypatch.chdir(tmp_path)
    kitctl("submit", *job("run", namespace), "--wait", "--", "train.py")
    assert "written" in kitctl("logs", "run", "-n", namespace)


@pytest.mark.long  # tests/charts compares its manifests with kitctl's
def test_the_chart_finds_what_was_sent_for_it(namespace: str, tmp_path: Path) -> None:
    project(tmp_path / "project", SMALL)
    output = kitctl("upload", "-n", namespace, "--workdir", str(tmp_path / "project"), "--", "train.py")
    code = yaml.safe_load(output.partition("---")[2].partition("23 files")[0])
    values = {"name": "run", "namespace": namespace, "image": pushed(TRAINER_IMAGE), "nodes": 2}
    objects = rendered(given=values | {"command": ["train.py"], "args": ["0"], "workdir": "."} | code)
    kubectl("apply", "--server-side", "-f", "-", given=render.to_json(objects))
    kitctl("wait", "run", "-n", namespace)
    assert kitctl("logs", "run", "-n", namespace).count("version 1") == 2


@pytest.mark.wide
def test_outputs_are_one_folder_on_the_claim(namespace: str, tmp_path: Path) -> None:
    project(tmp_path / "project", SMALL)
    submitted(namespace, "run", tmp_path / "project", 0, "--outputs", "shared", "--wait")
    (claim,) = SHARED.glob(f"pvc-*_{namespace}_run-snapshots")
    (shared,) = claim.glob("outputs/*")
    assert {path.name for path in shared.iterdir()} == {"0.pt", "1.pt"}
    assert kitctl("snapshots", "list", "run", "-n", namespace), "outputs are not listed as snapshots"
