"""Runs the cases of a matrix on the ranks of one process group: undisturbed, interrupted and resumed.

A case interrupts training at a hook of the framework: by an exception on all ranks, which leaves what a kill leaves, or
by SIGTERM to the last rank, as at a drain. A module of a framework gives ``train(config, folder, interruption)``.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from kittrain.integrations import places
from kittrain.integrations.checkpoints import MARKER
from kittrain.rank.training.session import Drained
from kittrain.system import heartbeat
from kittrain.system.heartbeat import HeartbeatState

MOST_RESTARTS = 3


class Killed(BaseException):
    """Stands for SIGKILL: no framework catches it to save something."""


class Interruption:
    """Interrupts once, at an event of a step; events are counted from the step that training has finished.

    Args:
        event: name of a hook.
        step: finished steps.
        drain: SIGTERM to the last rank instead of an exception on all of them.
        part: of the script, if it trains several times.
        nth: which of the events of this step, from 1 on.
    """

    def __init__(self, *, event="", step=0, drain=False, part=0, nth=1):
        self.wanted = (event, step, part)
        self.drain = drain
        self.left = nth
        self.rows = set()  # what happened, in all attempts: what is repeated has to be the same
        self.done = False

    def at(self, event, step, part=0):
        if self.done or (event, step, part) != self.wanted:
            return
        self.left -= 1
        if self.left:
            return
        self.done = True
        if not self.drain:
            raise Killed
        if os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1):
            os.kill(os.getpid(), signal.SIGTERM)


class Killing(Interruption):
    """The same with SIGKILL, to rank 1 of a job; a file that survives says that it has been."""

    def __init__(self, flag, **where):
        super().__init__(**where)
        self.flag = Path(flag)

    def at(self, event, step, part=0):
        if (event, step, part) == self.wanted and os.environ["RANK"] == "1" and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def digest(values):
    """Of tensors by name, exact to the bit."""
    text = hashlib.sha256()
    for name, value in sorted(values.items()):
        text.update(name.encode())
        text.update(value.detach().cpu().contiguous().numpy().tobytes())
    return text.hexdigest()[:16]


def random_state():
    return digest({"state": torch.get_rng_state()})


def phase():
    """What the agent sees this rank do."""
    return HeartbeatState.read(Path(os.environ["KIT_HEARTBEAT_FILE"])).phase.name


def begin(folder):
    """What a new process of the script has: its own folder, and no Trainers yet."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.environ["KIT_SNAPSHOT_DIR"] = str(folder / "snapshots")
    os.environ["KIT_HEARTBEAT_FILE"] = str(heartbeat.prepare(folder / f"heartbeat-{os.environ['RANK']}"))
    places.forget()


def run_case(train, config, folder, interruption):
    """The facts of a run that was interrupted and resumed, what interrupted it, and the complete checkpoints then."""
    begin(folder)
    ended, kept = "not interrupted", list[str]()
    for _ in range(MOST_RESTARTS):
        try:
            return {"facts": train(config, interruption), "ended": ended, "kept": kept}
        except Killed:
            ended = "killed"
        except Drained:
            ended = "drained"
        kept = sorted(marker.parent.name for marker in folder.rglob(MARKER))
        dist.barrier()  # a restart begins when all ranks have ended
        begin(folder)
    return {"facts": None, "ended": ended, "kept": kept}


def job(train, file):
    """One case as a job."""
    case = json.loads(file.read_text())
    os.chdir(file.parent)
    facts = train(case["config"], Killing(case["flag"], **case["interruption"]))
    file.with_name(f"facts-{os.environ['RANK']}.json").write_text(json.dumps(facts))


def table(train):
    """Cases come from ``cases.json``, and results go to ``results-RANK.json``."""
    folder = Path.cwd()
    results = {}
    for number, case in enumerate(json.loads((folder / "cases.json").read_text())):
        print(f"case {case['id']}", flush=True)
        results[case["id"]] = run_case(
            train, case["config"], folder / f"case-{number}", Interruption(**case["interruption"])
        )
        (folder / f"results-{os.environ['RANK']}.json").write_text(json.dumps(results))


def main(train):
    """Run a table, or the one case of a job, whose file is the argument."""
    if sys.argv[1:]:
        job(train, Path(sys.argv[1]))
    else:
        table(train)
