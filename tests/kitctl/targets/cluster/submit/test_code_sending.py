"""Sending a folder with a job: small ones are a ConfigMap, and errors are found before anything is created."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from pathlib import Path

import pytest
import yaml

from kitctl.base import names
from kitctl.code.code_tree import ARCHIVE_LIMIT
from kitctl.code.workdir.collecting import collect
from tests.kitctl.targets.cluster.apiserver import ApiServer, User
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key
from tests.wheels import wheel

WITHOUT_EXEC = [
    {"verbs": ["*"], "apiGroups": [group], "resources": resources}
    for group, resources in {
        "": ["configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts", "services", "pods", "events"],
        "batch": ["jobs"],
        "networking.k8s.io": ["networkpolicies"],
        "rbac.authorization.k8s.io": ["roles", "rolebindings"],
        "storage.k8s.io": ["storageclasses"],
    }.items()
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("import model\n")
    (project / "model.py").write_text("")
    return project


def large(folder: Path) -> None:
    (folder / "noise.bin").write_bytes(os.urandom(ARCHIVE_LIMIT + 1))


def test_a_small_folder_is_one_configmap_of_the_job(server: ApiServer, kit: Kit, folder: Path) -> None:
    output = kit("submit", "--name", "run", "--workdir", str(folder), "--", "train.py")
    assert f"2 files (13 B) of {folder} sent to ConfigMap run-sources" in output
    made = server.store.get(Key("configmaps", "default", "run-sources"))
    ((key, packed),) = made["binaryData"].items()
    digest = collect(folder, ()).tree.digest
    assert key == f"{digest}.tar.gz"
    assert made["metadata"]["ownerReferences"][0]["name"] == "run"
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as archive:
        assert archive.getnames()[-1] == f"trees/{digest}.json"


def test_a_changed_folder_is_a_short_line_in_the_diff(kit: Kit, folder: Path) -> None:
    words = ("--name", "run", "--workdir", str(folder), "--", "train.py")
    kit("submit", *words)
    (folder / "model.py").write_text("X = 1\n")
    output = kit("diff", *words, exit_code=1)
    assert "characters" in output
    assert max(map(len, output.splitlines())) < 4000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "snapshots.enabled=false"), "The job has no claim that it could be sent to"),
        ((), "You may not send it to the job's claim"),
    ],
)
def test_a_folder_that_cannot_be_sent_is_rejected_before_anything_is_created(
    server: ApiServer, kit: Kit, folder: Path, words: tuple[str, ...], message: str
) -> None:
    server.users["limited"] = User(rules=WITHOUT_EXEC)
    large(folder)
    job = ("--name", "run", *words, "--workdir", str(folder), "--", "train.py")
    output = kit("submit", *job, token="limited", exit_code=2 if words else 1)
    assert (
        "more than a ConfigMap can have (900 KiB, packed); the largest files: noise.bin (900 KiB), train.py" in output
    )
    assert message in output
    assert not server.store.items("jobs", "default")
    assert not server.store.items("configmaps", "default")


def test_a_dry_run_warns_of_a_folder_too_large_for_a_configmap(kit: Kit, folder: Path) -> None:
    large(folder)
    output = kit("submit", "--dry-run=client", "--workdir", str(folder), "--", "train.py")
    assert "too large for a ConfigMap: such pods find it once kitctl submit has sent it" in output
    assert names.CODE_SUB_PATH in output


def test_modules_that_are_not_sent_are_named(kit: Kit, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    output = kit("submit", "--name", "run", "--", "train.py")
    assert "not sent with the job: model.py (in train.py, line 1); --workdir . sends the folder" in output
    assert "not sent with the job" not in kit("submit", "--name", "other", "--workdir", ".", "--", "train.py")


def test_a_folder_is_sent_for_the_chart(server: ApiServer, kit: Kit, folder: Path) -> None:
    output = kit("upload", "--workdir", str(folder), "--", "train.py")
    assert kit("upload", "--workdir", str(folder), "--", "train.py") == output, "it exists already"
    digest = collect(folder, ()).tree.digest
    value = yaml.safe_load(output.partition("---")[2].partition("2 files")[0])
    assert value == {"code": {"digest": digest, "configMap": f"code-{digest[:16]}"}}
    made = server.store.get(Key("configmaps", "default", f"code-{digest[:16]}"))
    assert [*made["binaryData"]] == [f"{digest}.tar.gz"]
    assert made["immutable"]


def test_requirements_are_sent_for_the_chart(server: ApiServer, kit: Kit, folder: Path) -> None:
    (folder / "requirements.txt").write_text("alpha\n")
    words = ("--requirements", str(folder / "requirements.txt"), "--", "-m", "m")
    output = kit("upload", *words)
    value = yaml.safe_load(output.partition("---")[2].partition("requirements of")[0])
    digest = value["code"]["requirements"]["digest"]
    assert value == {"code": {"requirements": {"digest": digest, "configMap": f"code-{digest[:16]}"}}}
    made = server.store.get(Key("configmaps", "default", f"code-{digest[:16]}"))
    assert [*made["binaryData"]] == [f"{digest}.tar.gz"]
    assert {"digest", "requirements"} == kit_value(kit("upload", "--workdir", str(folder), *words))


def kit_value(expected: str) -> set[str]:
    """The keys under ``kit`` that upload prints, without the ConfigMap's."""
    text = "".join(f"{line}\n" for line in expected.splitlines() if line.startswith(("code:", "  ")))
    return {*yaml.safe_load(text)["code"]} - {"configMap"}


def test_many_wheels_without_a_claim_are_refused(server: ApiServer, kit: Kit, folder: Path) -> None:
    (folder / "requirements.txt").write_text("alpha\n")
    wheel(folder / "wheels", "alpha", "1.0", files={"alpha.py": f"# {os.urandom(1 << 20).hex()}"})
    words = ("--requirements", str(folder / "requirements.txt"), "--find-links", str(folder / "wheels"))
    output = kit("submit", "--name", "run", "--set", "snapshots.enabled=false", *words, "--", "-m", "m", exit_code=2)
    assert "requirements: 2 MiB of " in output
    assert "fix: put the wheels on a volume" in output
    assert not server.store.items("jobs", "default")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--",), "workdir: none is given; fix: name the folder to send"),
        (("--workdir", "{0}", "--"), "fix: name a claim that the chart's job uses, too: --claim NAME"),
        (("--workdir", "{0}", "--target", "local", "--"), "use --target cluster"),
    ],
)
def test_a_folder_that_cannot_be_sent_for_the_chart_is_an_error(
    kit: Kit, folder: Path, words: tuple[str, ...], message: str
) -> None:
    large(folder)
    output = kit("upload", *(word.format(folder) for word in words), "/opt/train.py", exit_code=2)
    assert message in output.replace("\n", "; ")


def test_another_configmap_of_the_name_is_not_taken_for_the_folder(server: ApiServer, kit: Kit, folder: Path) -> None:
    name = f"code-{collect(folder, ()).tree.digest[:16]}"
    theirs = {"other.tar.gz": ""}
    server.put("configmaps", name, binaryData=theirs)
    output = kit("upload", "--workdir", str(folder), "--", "train.py", exit_code=2)
    assert f"ConfigMap '{name}' already exists and does not belong to this job" in output
    assert server.store.get(Key("configmaps", "default", name))["binaryData"] == theirs
