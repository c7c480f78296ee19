"""A job whose rank 0 is killed is one run in each tracker, with each step once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

from tests.frameworks.jobs import kitctl
from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import SCRIPTS
from tools.test_frameworks import INTERPRETER

pytestmark = MARKS
STEPS = 12
SCALARS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps([[one.step, one.value] for one in events.Scalars("loss")]))
"""


def test_a_killed_job_is_one_run_in_each_tracker(tmp_path: Path) -> None:
    script = ("--", str(SCRIPTS / "tracked.py"), str(tmp_path), str(STEPS))
    kitctl("submit", "--nodes", "2", "--name", "tracked", "--env", "WANDB_SILENT=true", *script)
    try:
        kitctl("wait", "tracked", "--timeout", "600s")
        assert "Changing param values" in kitctl("logs", "tracked")  # and it went on
    finally:
        kitctl("delete", "tracked")
    once = {**dict.fromkeys(range(1, 6), 0.0), **dict.fromkeys(range(6, STEPS + 1), 5.0)}
    assert tensorboard(tmp_path / "runs") == tensorboard(tmp_path / "lightning" / "lightning_logs") == once
    runs, logged = mlflow(tmp_path)
    assert {status for _, status in runs} == {"FINISHED"}
    nested = Counter(name for name, _ in runs)
    assert (nested["trial"], nested["warm-up"], len(runs)) == (2, 1, 4), "and the script's own run"
    assert logged.keys() == set(range(1, STEPS + 1))
    own, others = wandb_ids(tmp_path)
    assert sorted(own.values()) == [1, 2]  # the second run of the script, and the first one in both of its starts
    first, second = sorted(own, key=len)
    assert second == f"{first}-2"
    assert set(others.values()) == {1}  # of rank 1: as ever


def tensorboard(folder: Path) -> dict[int, float]:
    """Steps and their values as TensorBoard shows them, of the only run in a folder."""
    (logs,) = folder.iterdir()
    assert len([*logs.glob("events.*")]) == 2  # a file a start
    shown = subprocess.run([INTERPRETER, "-c", SCALARS, logs], check=True, capture_output=True, text=True).stdout
    scalars = json.loads(shown)
    assert len(scalars) == STEPS
    return dict(scalars)


def mlflow(folder: Path) -> tuple[list[tuple[str, str]], Counter[int]]:
    """Names and states of all runs, and how often each step was logged."""
    with sqlite3.connect(folder / "mlflow.db") as store:
        runs = store.execute("select name, status from runs").fetchall()
        steps = Counter(step for (step,) in store.execute("select step from metrics where key = 'loss'"))
    return runs, steps


def wandb_ids(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """How many folders each id has: of rank 0, whose ids are longer than those that W&B makes, and of others."""
    names = [path.name for path in (folder / "wandb").glob("offline-run-*")]
    ids = Counter(name.split("-", 3)[3] for name in names)  # after offline, run and the time
    own = Counter({name: count for name, count in ids.items() if len(name) > len("8letters")})
    return own, ids - own
