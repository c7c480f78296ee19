"""Ranks and their workers import a job's requirements, however they are started; the agent does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores import stored
from tests.trainer.nodes import Nodes
from tests.wheels import wheel

pytestmark = pytest.mark.slow

SCRIPT = """
import os, subprocess, sys
import torch, torch.distributed as dist
import alpha, shared
from torch.utils.data import DataLoader, Dataset

class Versions(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        import alpha
        return alpha.VERSION

if __name__ == "__main__":
    dist.init_process_group("gloo")
    workers = [DataLoader(Versions(), num_workers=1, multiprocessing_context=way) for way in ("fork", "spawn")]
    found = [batch[0] for loader in workers for batch in loader]
    child = subprocess.run([sys.executable, "-c", "import alpha; print(alpha.VERSION)"], capture_output=True, text=True)
    print(f"rank {dist.get_rank()}: {alpha.VERSION} {found} {child.stdout.strip()} {shared.WHERE}", flush=True)
    dist.destroy_process_group()
"""


def requirements(folder: Path, *lines: str) -> dict[str, str]:
    sent = folder / "sent"
    (sent / "requirements.txt").write_text("\n".join(["--no-index", "--find-links .", *lines, ""]))
    digest, store = stored(sent, folder / "store")
    places = {"KIT_PACKAGES_STORE": str(store), "KIT_PACKAGES_CACHE": str(folder / "packages")}
    return {"KIT_PACKAGES_DIGEST": digest} | places


@pytest.mark.parametrize("warm", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_ranks_and_their_workers_find_them(tmp_path: Path, warm: str) -> None:
    wheel(tmp_path / "sent", "alpha", "1.5")
    wheel(tmp_path / "sent", "shared", "1.0", files={"shared.py": "WHERE = 'packages'\n"})
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "train.py").write_text(SCRIPT)
    (tmp_path / "script" / "shared.py").write_text("WHERE = 'script'\n")
    env = requirements(tmp_path, "alpha", "shared")
    with Nodes(tmp_path, str(tmp_path / "script" / "train.py"), KIT_WARM_WORKERS=warm, **env) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0], nodes.everything()
        output = nodes.everything()
    for rank in range(2):
        assert f"rank {rank}: 1.5 {['1.5'] * 4} 1.5 script" in output
    assert output.count("requirements: alpha-1.5 shared-1.0 installed in") == 1
    assert "new interpreter" not in output


def test_a_newer_version_of_an_already_imported_package_is_used(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import typing_extensions as t; print('found', getattr(t, 'VERSION', None))")
    wheel(tmp_path / "sent", "typing_extensions", "99.0")
    with Nodes(
        tmp_path, str(tmp_path / "train.py"), nodes="1", **requirements(tmp_path, "typing_extensions>50")
    ) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        output = nodes.output(0)
    assert "found 99.0" in output
    assert "typing_extensions.py in " in output


def test_a_failed_installation_is_fatal_for_the_node(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    wheel(tmp_path / "sent", "alpha", "1.5")
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="1", **requirements(tmp_path, "alpha>2")) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        end = nodes.end(0)
    assert end["outcome"] == "fatal"
    assert "No matching distribution found for alpha>2" in end["reason"]
