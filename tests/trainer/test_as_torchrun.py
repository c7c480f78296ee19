"""A rank finds what it finds under torchrun, warm or cold: the same script runs under both, and sees the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.nodes import ColdNodes
from tests.trainer.warm_agents import warm_environ

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WRITE = """
def write(seen):
    import json, os, pathlib
    pathlib.Path(os.environ["OUTPUT"]).write_text(json.dumps(seen))
"""
IDENTITY = """
'''A docstring.'''
import os, pickle, sys
import __main__
import env, logs, model, trainer, utils.helper
class Thing: pass
def facts():
    return {
        "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path[0], "package": __package__,
        "spec": __spec__, "doc": __doc__, "loader": type(__loader__).__name__, "cached": __cached__,
        "main": __main__.__dict__ is globals(), "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "modules": [one.__file__ for one in (env, logs, model, trainer, utils.helper)],
        "code": facts.__code__.co_filename, "names": sorted(globals()),
    }
if __name__ == "__main__":
    os.chdir("/")
    assert os.path.exists(__file__)
    write(facts())
"""
MULTIPROCESSING = """
import multiprocessing, os, sys
class Numbers:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return index
def work(queue):
    queue.put([os.path.basename(__file__), __name__, sys.argv[1:]])
def spawned(rank, queue):
    queue.put(rank)
if __name__ == "__main__":
    import torch.multiprocessing  # here, so that few of the processes below take the time to import it
    from torch.utils.data import DataLoader
    seen = {}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        seen[method] = queue.get()
        process.join()
        loader = DataLoader(Numbers(), batch_size=4, num_workers=1, multiprocessing_context=method)
        seen[f"loader {method}"] = [batch.tolist() for batch in loader]
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(spawned, args=(queue,), nprocs=1)
    seen["torch"] = queue.get()
    write(seen)
"""
MODULE = """
import sys
from ..beside import NUMBER
write([sys.argv, __name__, __package__, __spec__.name, __file__, sys.path[0], NUMBER])
"""
COMMANDS = {
    "identity": ("train.py", "--epochs", "5"),
    "multiprocessing": ("processes.py", "5"),
    "module": ("-m", "package.inner.train", "--lr", "1e-3"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules whose names the kit or its libraries have, too."""
    files = {
        "train.py": IDENTITY.lstrip().replace("if __name__", f"{WRITE}if __name__"),
        "processes.py": WRITE + MULTIPROCESSING,
        "package/inner/train.py": WRITE + MODULE,
        "package/beside.py": "NUMBER = 3\n",
        **dict.fromkeys(("package/__init__.py", "package/inner/__init__.py", "utils/__init__.py"), ""),
        **dict.fromkeys(("env.py", "logs.py", "model.py", "trainer.py", "utils/helper.py"), "A = 1\n"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def seen_under_torchrun(folder: Path, command: tuple[str, ...]) -> Any:
    """What the script writes under plain torchrun."""
    output = folder / "torchrun.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", *command]
    subprocess.run(torchrun, check=True, cwd=folder, env={**os.environ, "OUTPUT": str(output), "OMP_NUM_THREADS": "1"})
    return json.loads(output.read_text())


def seen_under_the_agent(folder: Path, command: tuple[str, ...], warm: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What it writes under our agent."""
    monkeypatch.setenv("PYTHONPATH", warm_environ()["PYTHONPATH"])
    monkeypatch.chdir(folder)
    output = folder / f"agent-{warm}.json"
    with ColdNodes(folder, *command, nodes="1", OUTPUT=str(output), KIT_WARM_WORKERS=warm) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
    return json.loads(output.read_text())


@pytest.mark.parametrize(
    ("name", "warm_workers"),
    [
        ("identity", ["1", "0"]),
        ("module", ["1", "0"]),
        ("multiprocessing", ["1"]),
        pytest.param("multiprocessing", ["0"], marks=pytest.mark.long),
    ],
)
def test_a_rank_finds_what_it_finds_under_torchrun(
    folder: Path, name: str, warm_workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = seen_under_torchrun(folder, COMMANDS[name])
    for warm in warm_workers:
        assert seen_under_the_agent(folder, COMMANDS[name], warm, monkeypatch) == expected
