"""A rank finds what it finds under torchrun, warm or cold: the same script runs under both, and sees the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.trainer.nodes import SCRIPTS, ColdNodes
from tests.trainer.warm_agents import warm_environ

# What differs, by its path in what ``scripts/fresh.py`` writes: what a rank has more than under torchrun, what less.
# Under PYTHONUNBUFFERED, as torchrun starts its ranks.
MEANT: Final = {
    # An agent that is killed leaves no ranks.
    "kernel/dies with its parent": (9, 0),
    # SIGUSR1, two of the agent's signals and a fatal one print stacks (faulthandler); another asks for a trace.
    "kernel/SigCgt": ("00000380000006ea", "0000000000000002"),
    # The output goes to the agent, as do the stacks that it asks for, and the heartbeat is a file in memory.
    "kernel/descriptors": (["1 0.pipe", "2 0.pipe", "3 0.heartbeat.stacks", "5 0.heartbeat"], ["1 pipe", "2 pipe"]),
    # The agent gets lines at once.
    "interpreter/streams/stdout/line buffering": (True, False),
    # torchrun starts `python -u`.
    "interpreter/original argv": ([], ["-u"]),
    # What the rank has been given goes to processes that it starts (kittrain.agent.hooks.launching.own_groups).
    "processes/config": (["kittrain", "kittrain.heartbeat"], []),
    # Modules in the working folder must not hide the agent's.
    "interpreter/flags/safe_path": (True, False),
    # A hook waits for the import of a framework that the script may use.
    "interpreter/finders": (["_AfterImport"], []),
}
# The process that ranks are forked from has imported torch and the trainer library.
MEANT_WARM: Final = MEANT | {
    # A script that sets what torch has read already is warned.
    "interpreter/putenv": ("kittrain.agent.hooks.launching.late_variables.watch.<locals>.putenv", "posix.putenv"),
    # What was imported is exempt from collections.
    "interpreter/frozen objects": (True, False),
}
# Variables of a job, besides the manifests' own that begin with KIT_.
VARIABLES: Final = {"ACCELERATE_TORCH_DEVICE", "ACCELERATE_USE_CPU", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}

SEARCH_PATH: Final = warm_environ()["PYTHONPATH"]  # with this folder: tests change to another

pytestmark = [pytest.mark.slow, pytest.mark.wide, pytest.mark.timeout(1200)]

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
import concurrent.futures, dataclasses, multiprocessing, os, sys
@dataclasses.dataclass
class Batch:
    numbers: list
class Numbers:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return index
def work(queue):
    queue.put([os.path.basename(__file__), __name__, sys.argv[1:]])
def spawned(rank, queue):
    queue.put(Batch([rank]))
def own(batch):
    assert type(batch) is Batch, type(batch)
    return batch.numbers
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
        with context.Pool(1) as pool:
            seen[f"pool {method}"] = own(pool.apply_async(Batch, ([1],)).get(timeout=60))
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
            seen[f"executor {method}"] = own(executor.submit(Batch, [2]).result(timeout=60))
        loader = DataLoader(Numbers(), batch_size=4, num_workers=1, collate_fn=Batch, multiprocessing_context=method)
        seen[f"loader {method}"] = [own(batch) for batch in loader]
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(spawned, args=(queue,), nprocs=1)
    seen["torch"] = own(queue.get())
    write(seen)
"""
# What it sees: a long test compares this with torchrun, which imports torch for another eight processes.
IN_PROCESSES: Final[dict[str, object]] = {
    "fork": ["processes.py", "__main__", ["5"]],
    **{key: ["processes.py", "__mp_main__", ["5"]] for key in ("spawn", "forkserver")},
    **{key: [1] for key in ("pool fork", "pool spawn", "pool forkserver")},
    **{key: [2] for key in ("executor fork", "executor spawn", "executor forkserver")},
    **{key: [[0, 1, 2, 3], [4, 5, 6, 7]] for key in ("loader fork", "loader spawn", "loader forkserver")},
    "torch": [0],
}
MODULE = """
import pickle, sys
from ..beside import NUMBER
class Thing: pass
same = type(pickle.loads(pickle.dumps(Thing()))) is Thing
write([sys.argv, __name__, __package__, __spec__.name, __file__, sys.path[0], NUMBER, same, sorted(globals())])
"""
COMMANDS = {
    "identity": ("train.py", "--epochs", "5"),
    "multiprocessing": ("processes.py", "5"),
    "fresh": ("fresh.py", "5"),
    "fresh module": ("-m", "package.fresh", "5"),
    "module": ("-m", "package.inner.train", "--lr", "1e-3"),
}


@pytest.fixture(autouse=True)
def _signals_of_a_terminal() -> Iterator[None]:
    """What `nohup` and a shell's `&` ignore, torchrun's ranks do not: it has handlers, which a new program has not."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGQUIT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules whose names kitctl or its libraries have, too."""
    files = {
        "train.py": IDENTITY.lstrip().replace("if __name__", f"{WRITE}if __name__"),
        "processes.py": WRITE + MULTIPROCESSING,
        "package/inner/train.py": WRITE + MODULE,
        "package/beside.py": "NUMBER = 3\n",
        **dict.fromkeys(("fresh.py", "package/fresh.py"), (SCRIPTS / "fresh.py").read_text()),
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
    env = {name: text for name, text in warm_environ().items() if text}  # as for the agent's nodes
    env |= {"PYTHONPATH": SEARCH_PATH, "PYTHONUNBUFFERED": "1", "OUTPUT": str(output)}
    subprocess.run(torchrun, check=True, cwd=folder, env=env, capture_output=True)
    return json.loads(output.read_text())


def seen_under_the_agent(folder: Path, command: tuple[str, ...], warm: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What it writes under our agent."""
    output = folder / f"agent-{warm}.json"
    same = {"PYTHONPATH": SEARCH_PATH, "PYTHONUNBUFFERED": "1", "OUTPUT": str(output)}
    monkeypatch.chdir(folder)
    with ColdNodes(folder, *command, nodes="1", KIT_WARM_WORKERS=warm, **same) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
    return json.loads(output.read_text())


@pytest.mark.parametrize(
    ("name", "warm_workers"),
    [
        ("identity", ["1", "0"]),
        ("module", ["1", "0"]),
        pytest.param("multiprocessing", ["0"], marks=pytest.mark.long),
    ],
)
def test_a_rank_finds_what_it_finds_under_torchrun(
    folder: Path, name: str, warm_workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = seen_under_torchrun(folder, COMMANDS[name])
    assert name != "multiprocessing" or expected == IN_PROCESSES
    for warm in warm_workers:
        assert seen_under_the_agent(folder, COMMANDS[name], warm, monkeypatch) == expected


def test_processes_of_a_warm_rank_find_its_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_under_the_agent(folder, COMMANDS["multiprocessing"], "1", monkeypatch) == IN_PROCESSES


@pytest.mark.parametrize("name", ["fresh", "fresh module"])
def test_what_a_script_sees_of_its_process_differs_from_torchrun_as_it_is_meant_to(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = flat(seen_under_torchrun(folder, COMMANDS[name]))
    for warm, meant in (("1", MEANT_WARM), ("0", MEANT)):
        found = flat(seen_under_the_agent(folder, COMMANDS[name], warm, monkeypatch))
        more, less = set(found.pop("kernel/environment")), set(expected["kernel/environment"])
        assert {one for one in more - less if not one.startswith("KIT_")} == VARIABLES
        assert less - more <= {"TORCHELASTIC_SIGNALS_TO_HANDLE"}
        for which in IMPORTED if warm == "1" else IMPORTED[:1]:
            found.pop(which)
        differing = {key: difference(found[key], expected[key]) for key in found if found[key] != expected[key]}
        assert differing == {key: pair for key, pair in meant.items() if key in differing or key != SAFE}


SAFE: Final = "interpreter/flags/safe_path"  # a warm rank has the flags of the process that started its agent
# More modules are loaded; of a warm rank all that torch imports, which sets exit handlers and filters of warnings.
IMPORTED: Final = ("modules", "interpreter/exit handlers", "interpreter/filters")


def flat(facts: Any, path: str = "") -> dict[str, Any]:
    """The facts by their path."""
    if not isinstance(facts, dict):
        return {path.removeprefix("/"): facts}
    return {key: one for name, inner in facts.items() for key, one in flat(inner, f"{path}/{name}").items()}


def difference(found: Any, expected: Any) -> Any:
    """What a rank has more, and what less; of two lists with the same items, the lists."""
    if not (isinstance(found, list) and isinstance(expected, list)):
        return found, expected
    more, less = ([one for one in a if one not in b] for a, b in ((found, expected), (expected, found)))
    return (more, less) if more or less else (found, expected)
