"""Ranks in a user's environment without kitctl."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

KITCTLS_OWN = (
    *(
        "kitctl",
        "click",
        "msgspec",
        "rich",
        "kubernetes",
        "yaml",
        "_yaml",
        "tqdm",
        "kitjob",
        "kittrain",
        "_kittrain",
        "pathspec",
    ),
)
SCRIPT = """
import importlib.util, json, os, sys
import torch, torch.distributed as dist
dist.init_process_group()
total = torch.ones(1)
dist.all_reduce(total)
found = [name for name in ("click", "msgspec", "kitctl", "kittrain") if importlib.util.find_spec(name)]
print(f"rank {dist.get_rank()} sum {total.item():.0f} prefix {sys.prefix} found {found}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with torch and what torch needs, as links to this one's."""
    place = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = (place / "lib").glob("python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith(KITCTLS_OWN) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    return place


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ranks_run_in_an_environment_without_the_kit(kit: Kit, environment: Path) -> None:
    (kit.folder / "train.py").write_text(SCRIPT)
    job = ("--name", "other", "--nodes", "2", "--python", "other/bin/python")
    kit.run("submit", *job, "--wait", "--", "train.py")
    logs = kit.run("logs", "other")
    for rank in range(2):
        assert f"rank {rank} sum 2 prefix {environment} found ['kittrain']" in logs
    assert "warning" not in logs
    assert "no snapshots" in kit.run("snapshots", "list", "other")


@pytest.mark.slow
def test_an_interpreter_without_torch_is_refused_before_the_job_starts(kit: Kit) -> None:
    (kit.folder / "train.py").write_text("")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(kit.folder / "empty")], check=True)
    words = ("submit", "--name", "job", "--python")
    output = kit.run(*words, "empty/bin/python", "--", "train.py", exit_code=2)
    assert f"python: {kit.folder}/empty/bin/python has no torch" in output
    assert "python: no interpreter 'absent'" in kit.run(*words, "absent", "--", "train.py", exit_code=2)
    assert "is no Python that works" in kit.run(*words, "/bin/false", "--", "train.py", exit_code=2)
    assert "no jobs" in kit.run("list").lower()


@pytest.mark.parametrize("warm", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_files_in_the_current_folder_hide_no_module_of_ours(kit: Kit, warm: str) -> None:
    for name in {*sys.stdlib_module_names, "kitctl", "kitjob", "kittrain", "torch", "msgspec"}:
        (kit.folder / f"{name}.py").write_text("raise ImportError('the wrong file')\n")
    (kit.folder / "src").mkdir()
    (kit.folder / "src" / "train.py").write_text("import json, random, torch\nprint(torch.rand(1), random.random())\n")
    command = [str(Path(sys.executable).with_name("kitctl")), "submit", "--name", "hidden", "--nodes", "2"]
    command += ["--python", sys.executable, "--env", f"KIT_WARM_WORKERS={warm}", "--wait", "src/train.py"]
    done = subprocess.run(command, cwd=kit.folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
