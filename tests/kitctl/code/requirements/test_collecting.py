"""Collecting a job's requirements: one file, and local wheels."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kitctl.base.errors import SpecError
from kitctl.code import credentials
from kitctl.code.code_tree import SentFolder, Sources
from kitctl.code.requirements.collecting import collect
from kitctl.code.sources import sources
from kitctl.code.workdir.reading import content
from kitctl.code.workdir.summary import sent
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob.sections import Requirements, Snapshots
from tests.kitctl.rendered import document_in, pod_in
from tests.wheels import wheel


def text(found: SentFolder, name: str = "requirements.txt") -> list[str]:
    return content(found, name).decode().splitlines()


def test_files_and_wheels_are_sent(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "alpha", "1.0")
    (tmp_path / "requirements.txt").write_text("\ufeff-c limits.txt\nalpha\n--find-links https://host/links\n", "utf-8")
    (tmp_path / "limits.txt").write_text("alpha<2\n")
    section = Requirements(
        file="requirements.txt",
        index_url="https://index/simple",
        extra_index_urls=("https://more/simple",),
        find_links=("wheels", "/data/wheels"),
    )
    found = collect(section, tmp_path)
    options = ["--index-url https://index/simple", "--extra-index-url https://more/simple"]
    links = ["--find-links https://host/links", "--find-links /data/wheels", "--find-links wheels"]
    assert text(found) == [*options, *links, "alpha"]
    assert text(found, "constraints.txt") == ["alpha<2"]
    assert [*found.tree.files] == ["constraints.txt", "requirements.txt", "wheels/alpha-1.0-py3-none-any.whl"]
    assert found.archive
    assert "requirements of " in sent(found, "there")


def test_comments_do_not_change_the_digest(tmp_path: Path) -> None:
    digests = set()
    for line in ("alpha", "alpha  # because", "\n\nalpha"):
        (tmp_path / "requirements.txt").write_text(line)
        digests.add(collect(Requirements(file="requirements.txt"), tmp_path).tree.digest)
    assert len(digests) == 1


def test_a_project_with_an_extra(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'x'\ndependencies = ['a']\n[project.optional-dependencies]\nb = ['c']\nd = ['e']\n"
    )
    assert text(collect(Requirements(file="pyproject.toml[b, d]", no_index=True), tmp_path)) == ["--no-index", *"ace"]


@pytest.mark.parametrize(
    ("file", "links", "words"),
    [
        ("absent.txt", (), "absent.txt does not exist"),
        ("empty.txt", (), "names no requirements"),
        ("binary.txt", (), "cannot be read"),
        ("good.txt", ("absent",), "absent is not a folder; fix: give a folder with wheels, a URL, or a path in the"),
        ("good.txt", ("empty",), "has no wheels; fix: build them"),
        ("good.txt", ("one", "two"), "alpha-1.0-py3-none-any.whl is in "),
    ],
)
def test_an_error_names_its_cause(tmp_path: Path, file: str, links: tuple[str, ...], words: str) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "good.txt").write_text("alpha\n")
    (tmp_path / "empty").mkdir()
    wheel(tmp_path / "one", "alpha", "1.0")
    wheel(tmp_path / "two", "alpha", "1.0", requires=["beta"])
    with pytest.raises(SpecError) as raised:
        collect(Requirements(file=file, find_links=links), tmp_path)
    assert words in str(raised.value)


@pytest.mark.parametrize(("size", "claim"), [(10, True), (10, False), (2 << 20, True)])
def test_pods_find_them(tmp_path: Path, size: int, claim: bool) -> None:  # noqa: FBT001
    wheel(tmp_path / "wheels", "alpha", "1.0", files={"alpha.py": f"# {os.urandom(size).hex()}\n"})
    (tmp_path / "requirements.txt").write_text("alpha\n")
    section = Requirements(file="requirements.txt", find_links=("wheels",))
    spec = JobSpec(name="job", command=("-m", "m"), requirements=section, snapshots=Snapshots(enabled=claim))
    found = sources(spec, tmp_path)
    assert found.requirements
    objects = render.manifests(spec, found)
    mounts = {one["mountPath"]: one for one in pod_in(objects)["containers"][0]["volumeMounts"]}
    document = document_in(objects)
    small = found.requirements.archive is not None
    assert mounts["/var/run/kitctl.dev/requirements"]["name"] == ("requirements" if small else "snapshots")
    assert ("job-requirements" in {one["metadata"]["name"] for one in objects}) == small
    assert "packages_dir" not in document, "each run has its own, among its job's snapshots"
    writable = [path for path, one in mounts.items() if one["name"] == "snapshots" and not one.get("readOnly")]
    assert writable == (["/snapshots"] if claim else [])
    assert json.dumps(document).count(found.requirements.tree.digest) == (2 if small else 1)


def test_a_password_in_an_index_url_is_a_warning() -> None:
    def warnings(url: str) -> list[str]:
        section = Requirements(file="r.txt", index_url=url)
        return [*credentials.warnings(JobSpec(name="job", requirements=section), Sources())]

    assert "--secret NAME=SECRET/KEY" in warnings("https://me:secret@host/simple")[0]
    assert not warnings("https://me:${TOKEN}@host/simple")
    assert not warnings("https://host:8080/simple")


def test_the_jobs_index_comes_after_the_files_since_the_last_one_counts(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-i https://file/simple\nalpha\n")
    found = collect(Requirements(file="requirements.txt", index_url="https://job/simple"), tmp_path)
    assert text(found) == ["--index-url https://file/simple", "--index-url https://job/simple", "alpha"]
