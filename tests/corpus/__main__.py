"""Makes every situation live on this machine, records what is known of the job, and writes docs/corpus.md.

python -m tests.corpus [NAME...]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kitctl.base import encoding
from kitctl.state.phase import JobState
from kitctl.state.why.explain import explain
from tests.corpus.judge import Told, judge, page
from tests.corpus.situations import SITUATIONS, Situation

FOLDER: Final = Path(__file__).parent / "recorded"
REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "docs" / "corpus.md"
LIMIT: Final = 240.0  # seconds; the machine may be busy
JOBS_TOGETHER: Final = 2


def kitctl(folder: Path, *words: str) -> str:
    """Run a command on the local target; returns its output."""
    command = [sys.executable, "-m", "kitctl", *words, "--target", "local"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def make(one: Situation) -> Told:
    """Submit it, watch it until something is told or it ends, and record the job's state then."""
    from kitctl.state.phase import derive  # noqa: PLC0415
    from kitctl.targets import TargetOptions  # noqa: PLC0415  with the state folder of this run
    from kitctl.targets.local import connect  # noqa: PLC0415

    name = one.name.replace(" ", "-")
    target = connect(TargetOptions(warn=lambda text: print(text, file=sys.stderr)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "train.py").write_text(one.script)
        kitctl(folder, "submit", "--name", name, "--nodes", "2", *one.options, "train.py")
        began, running, told = time.time(), 0.0, None
        state, found = None, None
        while time.time() < began + LIMIT:
            state = derive(target.job("default", name))
            running = running or (time.time() if state.phase != "Pending" and state.world_size else 0.0)
            now = explain(state, time.time())
            if (now.cause or now.fact) and (told is None or not one.healthy):
                told, found = time.time(), now
                seen = state
                if not one.healthy and re.search(one.cause, now.cause or now.fact):
                    break
            if state.finished:
                break
            time.sleep(0.5)
        assert state
        kitctl(folder, "delete", name, "-y")
        record(one, seen if told else state)
        result = found or explain(state, time.time())
        return judge(one, result, seconds=(told - (running or began)) if told else None, phase=state.phase)


def record(one: Situation, state: JobState) -> None:
    """Keep it for the fast tests, without this machine's paths."""
    text = encoding.encode(state).decode()
    here = os.environ["XDG_STATE_HOME"], tempfile.gettempdir(), sys.prefix, sys.base_prefix, str(REPOSITORY)
    for path in here:
        text = text.replace(path, "/here")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / one.file).write_text(text + "\n")


def main(names: list[str]) -> None:
    """Run all, or those that are named."""
    chosen = [one for one in SITUATIONS if not names or one.name in names]
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        with ThreadPoolExecutor(JOBS_TOGETHER) as pool:
            results = []
            for told in pool.map(make, chosen):
                print(told.situation.name, told.cause, told.fix, told.seconds, told.said, sep=" | ", flush=True)
                results.append(told)
    if not names:
        PAGE.write_text(page(results))


if __name__ == "__main__":
    main(sys.argv[1:])
