"""Requirements are installed next to the interpreter's packages and replace none of them."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kittrain.agent.setup import pip_install
from kittrain.agent.setup.pip_install import (
    RequirementsError,
    RequirementsUnavailableError,
    install,
    installed_packages,
    reason_of,
)
from tests.wheels import wheel

UNREACHABLE = "--index-url http://127.0.0.1:9/simple"  # discard: nothing listens


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    wheels = tmp_path / "sent" / "wheels"
    wheel(wheels, "alpha", "1.0", requires=["beta>=2", "torch", "numpy"])
    wheel(wheels, "beta", "1.0")
    wheel(wheels, "beta", "2.1")
    wheel(wheels, "greedy", "1.0", requires=["torch==1.0"])
    return wheels.parent


def tried(sent: Path, *lines: str) -> tuple[list[str], Path]:
    (sent / "requirements.txt").write_text("\n".join(["--no-index", "--find-links wheels", *lines]))
    folder = sent.parent / "installed"
    folder.mkdir()
    return install(sent, folder, installed_packages(), print), folder


@pytest.mark.slow
def test_missing_packages_are_installed_and_torch_is_kept(sent: Path) -> None:
    added, folder = tried(sent, "alpha")
    assert added == ["alpha-1.0", "beta-2.1"]
    assert sorted(path.name for path in folder.glob("*.py")) == ["alpha.py", "beta.py"]
    assert not (folder / "torch").exists()


@pytest.mark.wide
@pytest.mark.slow
def test_torchs_own_requirements_are_not_installed(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = sent.parent / "theirs" / "torchaudio-9.9+vendor.dist-info"
    theirs.mkdir(parents=True)
    (theirs / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torchaudio\nVersion: 9.9+vendor\nRequires-Dist: absent\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(theirs.parent), *sys.path]))
    monkeypatch.syspath_prepend(theirs.parent)
    wheel(sent / "wheels", "sound", "1.0", requires=["torchaudio>9"])
    assert tried(sent, "sound")[0] == ["sound-1.0"]


@pytest.mark.slow
def test_nothing_is_installed_if_all_requirements_are_met(sent: Path) -> None:
    added, folder = tried(sent, "numpy", "torch")
    assert not added
    assert not [*folder.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("absent", "No matching distribution found for absent"),
        ("beta==3", "beta==3 (from versions: 1.0, 2.1)"),
        ("greedy", "torch and what belongs to it stay as they are in the image"),
        ("numpy<1", "numpy"),
        (f"beta==2.1 --hash=sha256:{'0' * 64}", "DO NOT MATCH THE HASHES"),
    ],
)
def test_a_failed_installation_is_an_error_with_pips_message(sent: Path, line: str, words: str) -> None:
    with pytest.raises(RequirementsError) as raised:
        tried(sent, line)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.wide
@pytest.mark.slow
def test_hashes_are_verified(sent: Path) -> None:
    digest = hashlib.sha256((sent / "wheels" / "beta-2.1-py3-none-any.whl").read_bytes()).hexdigest()
    assert tried(sent, f"beta==2.1 --hash=sha256:{digest}")[0] == ["beta-2.1"]


@pytest.mark.slow
def test_an_unreachable_index_is_retryable(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_RETRIES", "1")
    (sent / "requirements.txt").write_text(f"{UNREACHABLE}\nabsent\n")
    with pytest.raises(RequirementsUnavailableError, match=r"installed: connection broken by .*Connection refused"):
        install(sent, sent, installed_packages(), print)


@pytest.mark.wide
@pytest.mark.slow
def test_the_jobs_constraints_apply(sent: Path) -> None:
    (sent / "constraints.txt").write_text("beta<2\n")
    assert tried(sent, "beta")[0] == ["beta-1.0"]


def test_an_interpreter_without_pip_is_an_error(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(RequirementsError, match="has no pip; fix: "):
        install(sent, sent, {}, print)
    monkeypatch.undo()
    with pytest.raises(RequirementsError, match=r"pip 9.0.1 is too old"):
        install(sent, sent, {"pip": "9.0.1"}, print)


def test_the_reason_omits_pips_other_output() -> None:
    lines = [
        "Looking in indexes: http://index",
        "Collecting absent",
        "ERROR: Could not find a version that satisfies the requirement absent (from versions: none)",
        "ERROR: No matching distribution found for absent",
        "",
    ]
    assert reason_of(lines) == (
        "Could not find a version that satisfies the requirement absent (from versions: none); "
        "No matching distribution found for absent"
    )
    broken = "WARNING: Retrying (Retry(total=0, read=None)) after connection broken by 'Refused': /absent/"
    assert reason_of([broken, *lines]) == "connection broken by 'Refused': /absent/"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ERROR: HTTP error 503 while getting http://index", RequirementsUnavailableError),
        ("OSError: [Errno 28] No space left on device", RequirementsUnavailableError),
        ("ERROR: HTTP error 429 while getting http://index", RequirementsUnavailableError),
        ("429 Client Error: Too Many Requests for url: http://index", RequirementsUnavailableError),
        ("ERROR: HTTP error 404 while getting http://index", RequirementsError),
        ("ERROR: bad-1.0-py3-none-any.whl (429 kB) has an invalid wheel", RequirementsError),
    ],
)
def test_retryable_errors_are_recognized(line: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="installed: "):
        pip_install._fail([line], 1, print)


def test_a_source_tree_is_installed_at_its_commit() -> None:
    vcs = {"url": "https://host/repo", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "sub"}
    found = {"metadata": {"name": "thing"}, "download_info": vcs}
    assert pip_install._line(found) == "thing @ git+https://host/repo@abc#subdirectory=sub"


@pytest.mark.slow
def test_pip_dies_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("import time\nopen('started', 'w').close()\ntime.sleep(600)\n")
    (tmp_path / "requirements.txt").write_text("--no-index\n")
    code = (
        "from kittrain.agent.setup import pip_install\n"
        "from pathlib import Path\n"
        f"pip_install._pip(['--no-build-isolation', '.'], Path({str(tmp_path)!r}), print)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.send_signal(signal.SIGKILL)
    assert children
    deadline = time.monotonic() + 10
    while any(_runs(int(pid)) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(int(pid)) for pid in children)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
