"""Fixtures for all tests: a temporary home, one thread per process, goldens, and no silent skips under CI."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest

from tests import warm_workers

if TYPE_CHECKING:
    import execnet

# Ranks of one test share the machine's cores with those of others.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Only tests/gpu uses a GPU, if the machine has one.
if os.environ.get("KIT_GPU_TESTS") != "1":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# A shell starts background processes with SIGINT ignored, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests assert no durations: a busy machine is no reason to fail.
hypothesis.settings.register_profile("kit", deadline=None)
hypothesis.settings.load_profile("kit")

Golden = Callable[[Path, str], None]
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="overwrite the files in tests/golden instead of comparing"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Goldens are written by those tests alone that compare them."""
    if config.getoption("--update-goldens"):
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[execnet.XSpec]) -> None:
    warm_workers.fork_workers(config, specs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector meanwhile, and spare it the imported modules: a sixth of the time of fast tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither read nor change the user's state folder and kubeconfig: there is none."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(path, text)``: asserts that the file contains this text; with ``--update-goldens``, writes it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.name} is missing: make goldens"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: make goldens, and review the diff"

    return check


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """For other users than root, run tests marked ``needs_root`` as root of new user, mount and network namespaces."""
    if os.getuid() == 0 or not pyfuncitem.get_closest_marker("needs_root"):
        return None
    own = ["unshare", "--user", "--map-root-user", "--mount", "--net"]
    own += ["sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]  # where `ip netns` keeps its names
    if not shutil.which("unshare") or subprocess.run([*own, "true"], check=False).returncode:
        pytest.skip("needs root, or the right to make user namespaces (sysctl kernel.unprivileged_userns_clone)")
    with tempfile.TemporaryDirectory() as folder:
        again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
        command = [*own, *again, pyfuncitem.nodeid]
        done = subprocess.run(command, check=False, cwd=pyfuncitem.config.rootpath, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _never_skipped(report, item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _never_skipped(report, collector.nodeid)


def _never_skipped(report: Report, name: str) -> Report:
    """Under CI all requirements of the tests are set up, so a skip is an error of the set-up."""
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{name} was skipped, and CI allows no skips: {report.longrepr}"
    return report
