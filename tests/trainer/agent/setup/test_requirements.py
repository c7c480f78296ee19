"""A job's requirements are installed once, in a place that its nodes share if possible."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kitjob.run import Packages, RunFacts
from kittrain.agent.setup.pip_install import RequirementsError, installed_packages
from kittrain.agent.setup.requirements import key, required_packages
from kittrain.job.env import NodeEnv
from tests.stores import packed, stored
from tests.wheels import wheel

NODE = """
import sys
from kitjob.run import Packages, RunFacts
from kittrain.job.env import NodeEnv
from kittrain.agent.setup.requirements import required_packages
digest, store, packages = sys.argv[1:]
node = NodeEnv(run=RunFacts(packages=Packages(digest=digest, store=store, cache=packages)))
print(required_packages(node, lambda text: print(text, flush=True)))
"""


def needing(digest: str, store: Path, cache: Path | None = None) -> RunFacts:
    return RunFacts(packages=Packages(digest=digest, store=str(store), cache=str(cache or "")))


def sent(tmp_path: Path, *lines: str) -> tuple[str, Path]:
    folder = tmp_path / "sent"
    wheel(folder, "alpha", "1.0")
    (folder / "requirements.txt").write_text("\n".join(["--no-index", "--find-links .", *lines, ""]))
    return stored(folder, tmp_path / "store")


@pytest.mark.slow
def test_one_node_installs_and_the_others_wait(tmp_path: Path) -> None:
    digest, store = sent(tmp_path, "alpha")
    command = [sys.executable, "-c", NODE, digest, str(store), str(tmp_path / "packages")]
    nodes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [node.communicate()[0] for node in nodes]
    assert sum("requirements: alpha-1.0 installed in " in text for text in outputs) == 1
    assert sum("waiting for another node, which installs the requirements" in text for text in outputs) == 2
    (folder,) = {text.splitlines()[-1] for text in outputs}
    assert sorted(path.name for path in Path(folder).glob("*.py")) == ["alpha.py"]
    later = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert later.splitlines() == ["the requirements are installed already", folder]


@pytest.mark.slow
def test_a_run_does_not_use_what_another_run_has_written(tmp_path: Path) -> None:
    """Ranks of each run can write to the claim, and the names of folders are no secret."""
    digest, store = sent(tmp_path, "alpha")
    name = key(digest, installed_packages())
    places = [tmp_path / ".packages" / run / name for run in ("first", "second", "other")]
    for number, place in enumerate(places):
        place.mkdir(parents=True)
        (place / "alpha.py").write_text("print('not alpha')\n")
        os.utime(place.parent, (number, number))
    messages: list[str] = []
    node = NodeEnv(run=needing(digest, store), snapshot_dir=tmp_path, run_id="mine")
    folder = required_packages(node, messages.append)
    assert folder == tmp_path / ".packages" / "mine" / name
    assert "VERSION = '1.0'" in (folder / "alpha.py").read_text()
    assert "the requirements are installed already" not in messages
    left = {path.name for path in (tmp_path / ".packages").iterdir()}
    assert left == {"mine", "other"}, "those of the last run stay, since its ranks may still be ending"
    assert required_packages(node, messages.append) == folder
    assert messages[-1] == "the requirements are installed already"


@pytest.mark.slow
def test_without_shared_storage_each_node_installs_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sent(tmp_path, "alpha")
    digest, store = packed(tmp_path / "sent", tmp_path)
    (tmp_path / "file").touch()
    messages: list[str] = []
    node = NodeEnv(run=needing(digest, store, tmp_path / "file" / "below"))
    folder = required_packages(node, messages.append)
    assert folder
    assert folder.parent == tmp_path / f"kit-packages-{os.getuid()}"
    assert (folder / "alpha.py").is_file()
    assert "installing the requirements for this node alone" in messages[0]


def test_packages_that_another_user_may_have_written_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    digest, store = sent(tmp_path, "alpha")
    open_to_all = tmp_path / f"kit-packages-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(RequirementsError, match="other users may have written to it: remove it"):
        required_packages(NodeEnv(run=needing(digest, store)), print)


@pytest.mark.slow
def test_a_failed_attempt_leaves_nothing_and_the_next_one_tries_again(tmp_path: Path) -> None:
    digest, store = sent(tmp_path, "absent")
    node = NodeEnv(run=needing(digest, store, tmp_path / "packages"))
    for _ in range(2):
        with pytest.raises(RequirementsError, match="No matching distribution found for absent"):
            required_packages(node, print)
    assert not [*(tmp_path / "packages").iterdir()]


def test_a_job_without_requirements_has_no_folder() -> None:
    assert required_packages(NodeEnv(), print) is None


def test_the_folders_name_depends_on_everything_that_affects_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {key("a", {"torch": "2.6"}), key("b", {"torch": "2.6"}), key("a", {"torch": "2.7"}), key("a", {})}
    monkeypatch.setattr("sysconfig.get_platform", lambda: "other")
    assert len(names | {key("a", {})}) == 5
