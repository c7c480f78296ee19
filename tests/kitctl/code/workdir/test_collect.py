"""Which files of a folder are sent, with git and without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kitctl.base.errors import SpecError
from kitctl.code import code_tree
from kitctl.code.code_tree import SentFolder
from kitctl.code.workdir.collecting import collect
from kitctl.code.workdir.selection import CREDENTIAL, HIDDEN, IGNORED, LISTED, NEVER
from kitctl.code.workdir.summary import sent


def write(folder: Path, *names: str, content: bytes = b"x") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def paths(found: SentFolder) -> set[str]:
    return {*found.tree.files, *found.tree.links}


def test_git_selects_the_files_and_untracked_ones_are_sent(repository: Path) -> None:
    write(repository, "train.py", "lib/model.py", "new.py", "data/big.bin", ".gitignore", "old.py", ".github/x.yml")
    (repository / ".gitignore").write_text("data/\n")
    write(repository, "weights.bin", content=b"\xff\x00\xfe")
    git(repository, "add", "train.py", "lib", "old.py", ".github", "weights.bin")
    (repository / "old.py").unlink()
    found = collect(repository, ())
    assert paths(found) == {"train.py", "lib/model.py", "new.py", ".github/x.yml", "weights.bin"}
    assert found.left_out == {IGNORED: ("data/",), HIDDEN: (".gitignore",)}


def test_ignored_files_that_are_tracked_are_sent(repository: Path) -> None:
    write(repository, "train.py", "model.bin")
    git(repository, "add", "model.bin")
    (repository / ".gitignore").write_text("*.bin\n")
    assert "model.bin" in paths(collect(repository, ()))


def test_without_git_gitignore_files_are_respected(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "data/a", "lib/model.py", "lib/out/b", "lib/x.log", "keep/out/c")
    (tmp_path / ".gitignore").write_text("data\n")
    (tmp_path / "lib" / ".gitignore").write_text("out/\n*.log\n")
    found = collect(tmp_path, ())
    assert paths(found) == {"train.py", "lib/model.py", "keep/out/c"}
    assert set(found.left_out[IGNORED]) == {"data/", "lib/out/", "lib/x.log"}


def test_kitignore_has_the_syntax_of_gitignore(repository: Path) -> None:
    write(repository, "train.py", "a.csv", "b.csv", "docs/deep/x.md", "build/y", "lib/build/z")
    (repository / ".kitignore").write_text("# data\n*.csv\n!b.csv\ndocs/**\n/build/\n")
    found = collect(repository, ())
    assert paths(found) == {"train.py", "b.csv", "lib/build/z"}
    assert set(found.left_out[LISTED]) == {".kitignore", "a.csv", "docs/deep/x.md", "build/y"}


@pytest.mark.parametrize("use_git", [True, False])
def test_a_line_with_an_exclamation_mark_sends_what_git_ignores(tmp_path: Path, *, use_git: bool) -> None:
    if use_git:
        git(tmp_path, "init", "-q")
    write(tmp_path, "train.py", "data/a/train.bin", "data/a/raw.txt", "data/a/secret.key", "out/x.bin", "x.pkl")
    write(tmp_path, "venv/pyvenv.cfg", "venv/y.bin")
    (tmp_path / ".gitignore").write_text("*.bin\nout/\n*.pkl\nvenv/\n*.key\n")
    assert paths(collect(tmp_path, ())) == {"train.py", "data/a/raw.txt"}
    (tmp_path / ".kitignore").write_text("!*.bin\n!*.key\n!x.pkl\n")
    found = collect(tmp_path, ())
    assert paths(found) == {"train.py", "data/a/raw.txt", "data/a/train.bin", "out/x.bin", "x.pkl"}
    assert not {"data/a/train.bin", "x.pkl"} & {*found.left_out[IGNORED]}
    assert "data/a/secret.key" in found.left_out[CREDENTIAL], "a pattern is not a name"


def test_hidden_files_and_credentials_are_sent_only_if_named(repository: Path) -> None:
    write(repository, "train.py", ".env", "key.pem", ".config/x", "lib/.hidden", "tracked.pem")
    git(repository, "add", "tracked.pem")
    found = collect(repository, ())
    assert paths(found) == {"train.py"}
    assert found.left_out == {HIDDEN: (".config/x", "lib/.hidden"), CREDENTIAL: (".env", "key.pem", "tracked.pem")}
    named = collect(repository, (".env", "key.pem", ".config"))
    assert paths(named) == {"train.py", ".env", "key.pem", ".config/x"}
    assert set(named.credentials) == {".env", "key.pem"}


def test_ignored_files_are_sent_if_named(repository: Path) -> None:
    write(repository, "train.py", "data/a", "data/b")
    (repository / ".gitignore").write_text("data/\n")
    (repository / ".kitignore").write_text("train.py\n")
    assert paths(collect(repository, ("data", "train.py"))) == {"train.py", "data/a", "data/b"}


@pytest.mark.parametrize("tracked", [False, True])
def test_repositories_environments_and_caches_are_never_sent(repository: Path, *, tracked: bool) -> None:
    write(repository, "train.py", "venv/pyvenv.cfg", "venv/lib/x.py", "env/conda-meta/history", "env/bin/y")
    write(repository, "__pycache__/t.pyc", "lib/__pycache__/u.pyc", "old.pyc", "cache/CACHEDIR.TAG", "cache/z")
    write(repository, "node_modules/a/b.js", "lib/model.py", ".mypy_cache/c")
    if tracked:
        git(repository, "add", "-f", ".")
    for send in ((), ("venv", "node_modules", "lib")):
        assert paths(collect(repository, send)) == {"train.py", "lib/model.py"}
    (repository / ".git").rename(repository / ".was-git")
    found = collect(repository, ())
    assert paths(found) == {"train.py", "lib/model.py"}
    assert "venv/pyvenv.cfg" in found.left_out[NEVER]


def test_a_folder_that_is_itself_an_environment_is_sent(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "pyvenv.cfg")
    assert "train.py" in paths(collect(tmp_path, ()))


def test_repositories_in_the_repository_are_sent(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    write(other, "sub.py")
    git(other, "add", ".")
    git(other, "commit", "-qm", "x")
    write(repository, "train.py")
    git(repository, "submodule", "add", "-q", str(other), "module")
    git(repository, "clone", "-q", str(other), "nested")
    found = paths(collect(repository, ()))
    assert {"train.py", "module/sub.py", "nested/sub.py"} <= found
    assert not any(".git/" in path for path in found)


def test_a_folder_of_a_repository_that_ignores_it_is_sent(repository: Path) -> None:
    write(repository, "runs/one/train.py")
    (repository / ".gitignore").write_text("runs/\n")
    assert paths(collect(repository / "runs" / "one", ())) == {"train.py"}


def test_variables_of_a_git_hook_are_ignored(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They name another repository, which tracks another of the ignored files."""
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    write(other, "theirs.tmp")
    git(other, "add", "theirs.tmp")
    write(repository, "train.py", "ours.tmp", "theirs.tmp")
    git(repository, "add", "ours.tmp")
    (repository / ".gitignore").write_text("*.tmp\n")
    for variables in ({"GIT_DIR": other / ".git"}, {"GIT_INDEX_FILE": other / ".git" / "index"}):
        with monkeypatch.context() as hook:
            for name, value in variables.items():
                hook.setenv(name, str(value))
            assert paths(collect(repository, ())) == {"train.py", "ours.tmp"}, variables


def test_a_repositorys_settings_run_no_program(repository: Path) -> None:
    write(repository, "train.py")
    hook = repository.parent / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {repository}/started\n")
    hook.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(hook))
    collect(repository, ())
    assert not (repository / "started").exists()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_repository_fetches_nothing_that_it_lacks(tmp_path: Path, *, allowed: bool) -> None:
    """A partial clone with a sparse index asks its remote for a missing tree, by a program that its settings name."""
    source, clone, hook = tmp_path / "source", tmp_path / "clone", tmp_path / "hook.sh"
    write(source, "lib/model.py", "train.py")
    git(source, "init", "-q")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "all")
    git(tmp_path, "clone", "-q", "--sparse", "--filter=tree:0", f"file://{source}", str(clone))
    git(clone, "sparse-checkout", "init", "--cone", "--sparse-index")
    for pack in (clone / ".git" / "objects" / "pack").iterdir():
        pack.unlink()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    hook.chmod(0o755)
    git(clone, "config", "remote.origin.uploadpack", str(hook))
    if allowed:
        git(clone, "config", "protocol.file.allow", "always")
    assert "train.py" in paths(collect(clone, ()))
    assert not (tmp_path / "started").exists()


# -- links ------------------------------------------------------------------------------------------------------------


def test_links_inside_are_kept_as_links(repository: Path) -> None:
    write(repository, "lib/model.py", "train.py")
    (repository / "m.py").symlink_to("lib/model.py")
    (repository / "lib" / "up.py").symlink_to("../train.py")
    (repository / "code").symlink_to("lib")
    (repository / "absolute.py").symlink_to(repository / "train.py")
    (repository / "around.py").symlink_to(f"../{repository.name}/train.py")
    (repository / "lib" / "dangling").symlink_to("nothing")
    assert collect(repository, ()).tree.links == {
        "m.py": "lib/model.py",
        "lib/up.py": "../train.py",
        "code": "lib",
        "absolute.py": "train.py",
        "around.py": "train.py",
        "lib/dangling": "nothing",
    }


@pytest.mark.parametrize("target", ["../outside", "/etc/hosts", "hop", "lib/../../outside"])
def test_a_link_out_of_the_folder_is_rejected(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "job"
    write(folder, "train.py", "lib/x.py")
    write(tmp_path, "outside")
    (folder / "hop").symlink_to("../outside")
    (folder / "linked").symlink_to(target)
    (folder / ".kitignore").write_text("hop\n")
    with pytest.raises(SpecError, match=r"linked is a link to .*, outside of "):
        collect(folder, ())
    (folder / ".kitignore").write_text("hop\nlinked\n")
    assert paths(collect(folder, ())) == {"train.py", "lib/x.py"}


# -- limits and errors ------------------------------------------------------------------------------------------------


def test_too_large_a_folder_is_refused_with_the_largest_files(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    for number, name in enumerate(("data/a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "f.bin")):
        write(tmp_path, name)
        os.truncate(tmp_path / name, (50 + number) << 20)
    with pytest.raises(SpecError, match=r"315 MiB are more than the 200 MiB .* the largest: f\.bin \(55 MiB\), e\.bin"):
        collect(tmp_path, ())


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *(f"{number}.txt" for number in range(5)))
    monkeypatch.setattr("kitctl.code.workdir.reading.FILES_LIMIT", 4)
    with pytest.raises(SpecError, match="5 files are more than the 4 that can be sent"):
        collect(tmp_path, ())
    for number in range(3, 5):
        (tmp_path / f"{number}.txt").unlink()
        (tmp_path / f"{number}.txt").symlink_to("0.txt")
    with pytest.raises(SpecError, match="5 files are more than the 4 that can be sent"):
        collect(tmp_path, ())


def test_what_cannot_be_sent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a folder"):
        collect(tmp_path / "absent", ())
    with pytest.raises(SpecError, match="has no files to send"):
        collect(tmp_path, ())
    write(tmp_path, "train.py")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecError, match="pipe is neither a file nor a link"):
        collect(tmp_path, ())
    (tmp_path / "pipe").unlink()
    write(tmp_path, os.fsdecode(b"\xff.py"))
    with pytest.raises(SpecError, match=r"'\\udcff\.py' has letters that cannot be sent"):
        collect(tmp_path, ())


def test_the_digest_does_not_depend_on_order_and_times(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    write(first, "train.py", "lib/model.py")
    write(second, "lib/model.py", "train.py")
    os.utime(second / "train.py", (0, 0))
    one, other = collect(first, ()), collect(second, ())
    assert (one.tree.digest, one.archive) == (other.tree.digest, other.archive)
    (second / "train.py").chmod(0o755)
    assert collect(second, ()).tree.digest != one.tree.digest


def test_a_large_folder_has_no_archive(tmp_path: Path) -> None:
    write(tmp_path, "noise.bin", content=os.urandom(code_tree.ARCHIVE_LIMIT + 1000))
    assert collect(tmp_path, ()).archive is None
    write(tmp_path, "noise.bin", content=bytes(code_tree.ARCHIVE_LIMIT + 1000))
    assert collect(tmp_path, ()).archive is not None, "zeros can be packed"


def test_a_summary_of_the_sent_files_is_one_line(repository: Path) -> None:
    write(repository, "train.py", ".a", ".b", ".c", ".d")
    (repository / "link").symlink_to("train.py")
    assert sent(collect(repository, ()), "the moon") == (
        f"1 file and 1 link (1 B) of {repository} sent to the moon; "
        "left out: 4 hidden and not tracked by git (.a, .b, .c, ...)"
    )


@pytest.mark.parametrize("line", ["!", "\\"])
def test_an_invalid_pattern_is_an_error(tmp_path: Path, line: str) -> None:
    write(tmp_path, "train.py")
    (tmp_path / ".kitignore").write_text(f"*.csv\n{line}\n")
    with pytest.raises(SpecError, match=r"\.kitignore: Invalid git pattern"):
        collect(tmp_path, ())


def test_a_named_path_below_a_link_is_sent_as_the_link(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    write(folder, "lib/x.py", "train.py")
    (folder / "linked").symlink_to("lib")
    assert collect(folder, ("linked/x.py", "linked")).tree.links == {"linked": "lib"}
    write(tmp_path, "outside/x")
    (folder / "out").symlink_to("../outside")
    (folder / ".kitignore").write_text("out\n")
    with pytest.raises(SpecError, match=r"out is a link to .*, outside of"):
        collect(folder, ("out/x",))
