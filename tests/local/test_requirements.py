"""A job's requirements are installed once for all its nodes, into the user's cache."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from kitctl.targets.local.folder import packages_home
from tests.wheels import wheel

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SCRIPT = "import os, alpha; print('rank', os.environ['RANK'], 'has', alpha.VERSION, 'of', alpha.__file__)\n"


def prepared(kit: Kit, *lines: str) -> tuple[str, ...]:
    (kit.folder / "train.py").write_text(SCRIPT)
    wheel(kit.folder / "wheels", "alpha", "1.5", requires=["torch"])
    (kit.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    return ("--requirements", "requirements.txt", "--find-links", "wheels", "--no-index")


def test_they_are_installed_once_and_reused(kit: Kit) -> None:
    words = prepared(kit, "alpha>=1")
    output = kit.run("submit", "--name", "one", "--nodes", "2", *words, "--wait", "--", "train.py")
    assert f"requirements of {kit.folder / 'requirements.txt'} and 1 wheel (" in output
    logs = kit.run("logs", "one")
    (folder,) = packages_home().glob("[!.]*")
    for rank in range(2):
        assert f"rank {rank} has 1.5 of {folder / 'alpha.py'}" in logs
    assert logs.count("requirements: alpha-1.5 installed in") == 1
    kit.run("submit", "--name", "two", *words, "--wait", "--", "train.py")
    assert "the requirements are installed already" in kit.run("logs", "two")


PROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
BACKEND = """
import os, time
def build_wheel(folder, config_settings=None, metadata_directory=None):
    while not os.path.exists(os.environ["CONTINUE"]):
        time.sleep(0.05)
    raise SystemExit("the build fails")
"""


def test_the_status_shows_that_they_are_being_installed(kit: Kit) -> None:
    """A package's build waits for the test; meanwhile the status has the reason why no rank starts."""
    (kit.folder / "train.py").touch()
    (kit.folder / "requirements.txt").write_text("slow\n")
    release = kit.folder / "release"
    with tarfile.open(kit.folder / "slow-1.0.tar.gz", "w:gz") as sdist:
        for name, text in {"pyproject.toml": PROJECT, "backend.py": BACKEND}.items():
            info = tarfile.TarInfo(f"slow-1.0/{name}")
            info.size = len(text)
            sdist.addfile(info, io.BytesIO(text.encode()))
    words = ("--requirements", "requirements.txt", "--find-links", ".", "--no-index", "--env", f"CONTINUE={release}")
    kit.run("submit", "--name", "job", "--nodes", "2", *words, "--", "train.py")
    waiting = kit.start("wait", "job")
    state = kit.until("job", lambda state: state["reason"])
    assert (state["phase"], state["reason"]) == ("Starting", "installing requirements")
    assert sorted(node["reason"] for node in state["nodes"]) == ["", "installing requirements"], "the other node waits"
    assert waiting.stderr
    told = iter(waiting.stderr.readline, "")
    assert next((line for line in told if line == "job: Starting (installing requirements)\n"), None)  # it has looked
    release.touch()
    waiting.communicate(timeout=600)
    assert "the build fails" in kit.status("job")["reason"]


def test_a_failed_installation_is_the_jobs_reason(kit: Kit) -> None:
    words = prepared(kit, "alpha>=2")
    kit.run("submit", "--name", "job", *words, "--wait", "--", "train.py", exit_code=100)
    status = kit.status("job")
    assert status["phase"] == "Failed"
    assert "No matching distribution found for alpha>=2" in status["reason"]
    assert not [*packages_home().glob("[!.]*")]


@pytest.mark.wide
def test_bad_input_is_refused_before_the_job_starts(kit: Kit) -> None:
    prepared(kit, "-e .")
    submit = ("submit", "--name", "job", "--requirements")
    assert "absent.txt does not exist" in kit.run(*submit, "absent.txt", "--", "train.py", exit_code=2)
    assert "--workdir, or its wheel" in kit.run(*submit, "requirements.txt", "--", "train.py", exit_code=2)
    prepared(kit, "alpha")
    words = (*submit, "requirements.txt", "--find-links", "/absent", "--", "train.py")
    assert "requirements.findLinks: /absent is not a folder" in kit.run(*words, exit_code=2)
    assert "no jobs" in kit.run("list").lower()


def test_an_interpreter_without_pip_is_refused(kit: Kit) -> None:
    words = prepared(kit, "alpha")
    place = kit.folder / "no-pip"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = (place / "lib").glob("python*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").touch()
    info = packages / "torch-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    output = kit.run("submit", "--python", "no-pip/bin/python", *words, "--", "train.py", exit_code=2)
    assert "has no pip, which installs the requirements" in output
    assert "-m ensurepip" in output
