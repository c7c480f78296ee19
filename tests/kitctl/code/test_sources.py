"""Files that are sent with a job: which ones a pattern selects, and which ones are never sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kitctl.base.errors import SpecError
from kitctl.code import trainer_package
from kitctl.code.code_tree import NO_SOURCES
from kitctl.code.sources import SOURCES_LIMIT, sources
from kitctl.spec.job_spec import JobSpec
from kitjob.record import replace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "lib/model.py", "lib/deep/layer.py", "lib/.hidden", "lib/__pycache__/x.pyc", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name} ü\n", encoding="utf-8")
    return tmp_path


def travelling(folder: Path, script: str = "train.py", *send: str) -> dict[str, str]:
    return dict(sources(JobSpec(name="job", command=(script,), send=send), folder).files)


def test_a_relative_script_is_sent_and_an_absolute_one_is_in_the_image(folder: Path) -> None:
    assert travelling(folder) == {"train.py": "# train.py ü\n"}
    assert travelling(folder, "./train.py") == {"train.py": "# train.py ü\n"}
    assert travelling(folder, "/opt/train.py") == {}
    found = sources(JobSpec(name="job"), folder)
    assert (dict(found.files), found.folders) == ({}, ()), "a module is the image's, or the trainer's"


def test_the_trainer_is_sent_unless_the_image_has_it(folder: Path) -> None:
    assert sources(JobSpec(name="job", trainer="image"), folder) == NO_SOURCES
    assert sources(JobSpec(name="job"), folder).trainer == trainer_package.load()


def test_folders_and_globs_are_sent_without_hidden_files(folder: Path) -> None:
    assert list(travelling(folder, "train.py", "lib")) == ["lib/deep/layer.py", "lib/model.py", "train.py"]
    assert list(travelling(folder, "train.py", "*.txt", "*.py")) == ["notes.txt", "train.py"]


@pytest.mark.parametrize(
    ("script", "send", "message"),
    [
        ("lib", (), "command: lib is not a file"),
        ("*.py", (), "command: *.py does not exist in "),
        ("train.py", ("",), "send[0]: '' is not below "),
        ("train.py", ("**x",), "send[0]: '**x' is not a pattern: "),
        ("train.py", ("pipe",), "send[0]: pipe is not a file"),
        ("absent.py", (), "command: absent.py does not exist in "),
        ("train.py", ("*.csv",), "send[0]: *.csv matches nothing in "),
        ("train.py", ("../x",), "send[0]: '../x' is not below "),
        ("train.py", ("lib", "/etc/hosts"), "send[1]: '/etc/hosts' is not below "),
        ("train.py", ("data.bin",), "send[0]: data.bin cannot be sent with the job: "),
        ("train.py", ("large.txt",), "send: 901 KiB of files are more than the 900 "),
    ],
)
def test_files_that_cannot_be_sent_are_named_with_a_fix(
    folder: Path, script: str, send: tuple[str, ...], message: str
) -> None:
    (folder / "data.bin").write_bytes(b"\xff\xfe")
    (folder / "large.txt").write_text("x" * 1024 * 901)
    os.mkfifo(folder / "pipe")
    with pytest.raises(SpecError) as caught:
        travelling(folder, script, *send)
    (problem,) = caught.value.problems
    assert problem.startswith(message)
    assert "; fix: " in problem


def test_the_limit_is_in_bytes(folder: Path) -> None:
    text = "ü" * (SOURCES_LIMIT // 2)
    (folder / "large.txt").write_text(text, encoding="utf-8")
    assert len(text.encode()) == SOURCES_LIMIT
    assert travelling(folder, "/x.py", "large.txt") == {"large.txt": text}
    (folder / "large.txt").write_text(text + "u", encoding="utf-8")
    with pytest.raises(SpecError, match="900 KiB of files are more than"):
        travelling(folder, "/x.py", "large.txt")


def test_a_script_is_a_path_and_not_a_pattern(folder: Path) -> None:
    for name in ("a[1].py", "a1.py"):
        (folder / name).write_text(name)
    assert travelling(folder, "a[1].py") == {"a[1].py": "a[1].py"}


# -- files that are not sent ------------------------------------------------------------------------------------------

HIDDEN = (".env", ".git/config", "lib/.cache/key", ".ssh/id_rsa")


@pytest.fixture
def secretive(folder: Path) -> Path:
    for name in HIDDEN:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    return folder


@pytest.mark.parametrize("pattern", ["*", ".", "**/*", "./", "l*", "lib", "lib/*", "lib/**/*", "**/model.py"])
def test_hidden_files_are_sent_only_if_named(secretive: Path, pattern: str) -> None:
    assert "secret" not in travelling(secretive, "/x.py", pattern).values()


def test_the_whole_folder_excludes_hidden_files(secretive: Path) -> None:
    assert {*travelling(secretive, "/x.py", ".")} == {"train.py", "notes.txt", "lib/model.py", "lib/deep/layer.py"}


@pytest.mark.parametrize("pattern", ["?env", ".", "**/config", "*/config", "lib/*/key"])
def test_a_pattern_that_matches_only_hidden_files_is_an_error(secretive: Path, pattern: str) -> None:
    for name in ("train.py", "notes.txt", "lib/model.py", "lib/deep/layer.py"):
        (secretive / name).unlink()
    with pytest.raises(SpecError, match="or only hidden"):
        travelling(secretive, "/x.py", pattern)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (".env", {".env"}),
        (".e*", {".env"}),
        ("**/.cache/*", {"lib/.cache/key"}),
        ("lib/.cache", {"lib/.cache/key"}),
        (".git", {".git/config"}),
    ],
)
def test_named_hidden_files_are_sent(secretive: Path, pattern: str, found: set[str]) -> None:
    assert {*travelling(secretive, "/x.py", pattern)} == found


@pytest.mark.parametrize("target", ["credentials", "../credentials", "{folder}/../credentials", "{folder}/.env"])
@pytest.mark.parametrize("pattern", ["lib", "lib/*", "**/*.txt", "lib/data.txt", "."])
def test_a_link_out_of_the_folder_is_not_followed(secretive: Path, target: str, pattern: str) -> None:
    """A repository by another author may contain one."""
    (secretive.parent / "credentials").write_text("secret")
    linked = secretive / "elsewhere"
    linked.symlink_to(secretive.parent)
    (secretive / "lib" / "data.txt").symlink_to(
        linked / "credentials" if target == "credentials" else target.format(folder=secretive)
    )
    if target == "../credentials":
        (secretive / "lib" / "data.txt").unlink()
        (secretive / "lib" / "data.txt").symlink_to("../../credentials")
    with pytest.raises(SpecError, match=r"data\.txt is a link to .*, which is not sent"):
        travelling(secretive, "/x.py", pattern)


def test_a_link_to_a_folder_or_a_script_is_not_followed(secretive: Path) -> None:
    (secretive.parent / "other").mkdir()
    (secretive.parent / "other" / "train.py").write_text("secret")
    (secretive / "linked").symlink_to("../other")
    (secretive / "run.py").symlink_to("../other/train.py")
    for words in (("/x.py", "linked"), ("/x.py", "linked/*"), ("linked/train.py",), ("run.py",)):
        with pytest.raises(SpecError, match="which is not sent"):
            travelling(secretive, *words)


def test_a_link_within_the_folder_is_sent_as_its_target(folder: Path) -> None:
    (folder / "lib" / "same.py").symlink_to("model.py")
    assert travelling(folder, "/x.py", "lib/same.py") == {"lib/same.py": "# lib/model.py ü\n"}


# -- a folder ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("job/train.py", "command: job/train.py does not exist in the workdir {0}/job; fix: write train.py"),
        ("other.py", "command: other.py does not exist in the workdir {0}/job; fix: give a path from that folder"),
        ("{0}/job/train.py", "command: {0}/job/train.py is in the workdir {0}/job; fix: write train.py"),
        ("key.pem", "command: key.pem is in {0}/job, but is not sent; fix: name it: --send key.pem"),
        ("../train.py", "command: '../train.py' is not below {0}/job"),
    ],
)
def test_a_script_may_be_in_the_sent_folder(tmp_path: Path, script: str, message: str) -> None:
    (tmp_path / "job").mkdir()
    for name in ("train.py", "key.pem"):
        (tmp_path / "job" / name).write_text("x")
    with pytest.raises(SpecError) as caught:
        sources(JobSpec(name="job", workdir="job", command=(script.format(tmp_path),)), tmp_path)
    assert message.format(tmp_path) in str(caught.value)


@pytest.mark.parametrize("script", ["train.py", "./train.py", "linked.py", "/opt/train.py"])
def test_a_folder_is_sent_whether_the_script_is_in_it_or_in_the_image(tmp_path: Path, script: str) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "linked.py").symlink_to("train.py")
    found = sources(JobSpec(name="job", workdir=".", command=(script,)), tmp_path).workdir
    assert found
    assert {*found.tree.files} == {"train.py"}


@pytest.mark.parametrize(
    ("outputs", "told"), [("ck", "ck is a link"), ("a/ck", "a is a link"), ("log/x", "log is a file")]
)
def test_the_folder_for_outputs_is_no_link_and_no_file(tmp_path: Path, outputs: str, told: str) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_text("x")
    (tmp_path / "ck").symlink_to("real")
    (tmp_path / "a").symlink_to("real")
    (tmp_path / "log").write_text("x")
    spec = JobSpec(name="job", workdir=".", command=("train.py",), outputs=outputs)
    with pytest.raises(SpecError, match=f"outputs: {told} in .*; fix: name another folder"):
        sources(spec, tmp_path)
    assert sources(replace(spec, outputs="real/deeper"), tmp_path).workdir
