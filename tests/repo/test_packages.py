"""Installed packages work alone: kitctl without torch, kittrain without kitctl, the wheel with its templates."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import fast_yaml

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("packages")  # the tests share one bare environment, so they run in one process


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with kitctl's wheel, its declared dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    venv.create(folder / "env", with_pip=False)
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    for name in needed_by("kittrain"):
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            (site / part).symlink_to(Path(str(found.locate_file(part))))
    wheel = str(next(folder.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "env" / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    return folder / "env" / "bin"


def needed_by(package: str) -> set[str]:
    """The distributions that ``package`` requires without extras, and those that they require."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        for requirement in map(Requirement, requires(waiting.pop()) or ()):
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found.add(name)
                waiting.append(name)
    return found


def run(bare: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": ""}
    command = [str(bare / "kitctl"), *arguments]
    return subprocess.run(command, check=False, cwd=folder, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["torch", "numpy", "pytest"])
def test_the_bare_environment_is_bare(bare: Path, module: str) -> None:
    done = subprocess.run([bare / "python", "-c", f"import {module}"], check=False, capture_output=True, text=True)
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["submit", "--help"], ["schema"], ["list"]])
def test_kitctl_runs_without_torch(bare: Path, tmp_path: Path, arguments: list[str]) -> None:
    done = run(bare, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["render"], ["submit", "--dry-run=client"]])
@pytest.mark.parametrize("kind", ["IndexedJob", "TrainJob", "JobSet", "PyTorchJob"])
def test_an_installed_kitctl_renders_in_any_folder(bare: Path, tmp_path: Path, command: list[str], kind: str) -> None:
    done = run(bare, tmp_path, *command, "--name", "digits", "--nodes", "3", "--kind", kind)
    assert done.returncode == 0, done.stderr
    kinds = [document["kind"] for document in fast_yaml.load_all(done.stdout)]
    assert kinds[-1] == {"IndexedJob": "Job"}.get(kind, kind)
    assert "NetworkPolicy" in kinds


def test_the_local_target_reports_missing_packages(bare: Path, tmp_path: Path) -> None:
    done = run(bare, tmp_path, "submit", "--target", "local", "--nodes", "1")
    assert done.returncode == 2
    assert "lacks torch" in done.stderr
    assert "fix: " in done.stderr


@pytest.mark.parametrize("chart", ["training-job", "platform"])
def test_an_installed_kitctl_brings_the_charts_of_its_version(bare: Path, chart: str) -> None:
    code = f"from importlib.resources import files; print(files('kitctl') / 'charts' / '{chart}')"
    done = subprocess.run([bare / "python", "-c", code], check=True, cwd=bare, capture_output=True, text=True)
    assert chart_files(Path(done.stdout.strip())) == chart_files(ROOT / "charts" / chart)


def chart_files(folder: Path) -> set[Path]:
    """The files below a folder, by relative path, without compiled ones."""
    return {path.relative_to(folder) for path in folder.rglob("*.*") if path.suffix != ".pyc"}


BLOCK = """
import importlib, pkgutil, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def imports(code: str, *blocked: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where the packages ``blocked`` cannot be imported."""
    command = [sys.executable, "-c", BLOCK.format(blocked=blocked) + code]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.wide
def test_every_module_of_the_trainer_imports_without_kitctl() -> None:
    code = """
import kittrain
for module in pkgutil.walk_packages(kittrain.__path__, "kittrain."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # of another framework: tests/frameworks imports its module
            assert module.name.startswith("kittrain.integrations."), module.name
            assert error.name in {"accelerate", "lightning", "transformers"}, error
"""
    done = imports(code, "kitctl", "click", "jinja2", "kubernetes", "msgspec", "yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "kittrain.job.env",
        "kittrain.outcome.marker",
        "kittrain.outcome.failures",
        "kittrain.agent",
        "kittrain.rank.snapshots.__main__",
    ],
)
def test_modules_that_run_without_torch_do_not_import_it(module: str) -> None:
    done = imports(f"import {module}", "torch", "numpy")
    assert done.returncode == 0, done.stderr


def test_blocked_packages_cannot_be_imported() -> None:
    assert imports("import kittrain.agent.rendezvous.interface", "torch").returncode == 1
