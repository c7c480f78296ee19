"""Makes every situation live, on this machine or on the test cluster, records what is known of the job, and writes
docs/corpus.md.

python -m tests.corpus [NAME...]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kitctl.base import encoding
from kitctl.state.phase import JobState, derive
from kitctl.state.why.explain import Explanation, explain
from tests.corpus import on_cluster
from tests.corpus.judge import REFUSED, Told, judge, page
from tests.corpus.situation import Situation
from tests.corpus.situations import SITUATIONS

FOLDER: Final = Path(__file__).parent / "recorded"
REPOSITORY: Final = Path(__file__).parents[2]
FIRST_SCORES: Final = Path(__file__).parent / "first_scores.md"
PAGE: Final = REPOSITORY / "docs" / "corpus.md"
MEASURED: Final = FOLDER / "measured.json"  # what a recorded state does not show, by situation
LIMIT: Final = 120.0  # seconds; the machine may be busy
JOBS_TOGETHER: Final = 2


def kitctl(
    folder: Path, *words: str, where: tuple[str, ...] = ("--target", "local")
) -> subprocess.CompletedProcess[str]:
    """Run a command on a target."""
    command = [sys.executable, "-m", "kitctl", words[0], *where, *words[1:]]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def current_page() -> str:
    """docs/corpus.md, of what is recorded."""
    return page([recorded(one) for one in SITUATIONS], FIRST_SCORES.read_text())


def make(one: Situation) -> Told:
    """Submit it, watch it until something is told or it ends, and record the job's state then."""
    return make_on_cluster(one) if one.on == "cluster" else make_here(one)


def make_on_cluster(one: Situation) -> Told:
    """The same, in a namespace of its own."""
    from kitctl.targets import TargetOptions  # noqa: PLC0415
    from kitctl.targets.cluster import connect  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder, on_cluster.place(one, Path(folder)) as place:
        for path, text in {**one.files, "train.py": one.script}.items():
            (Path(folder) / path).write_text(text)
        where = ("--target", "cluster", "--kubeconfig", str(place.kubeconfig), "-n", place.namespace)
        began = time.time()
        submitted = kitctl(
            Path(folder), "submit", "--name", "run", "--nodes", "2", *place.options, "train.py", where=where
        )
        if submitted.returncode:
            return refused(one, submitted.stderr, seconds=time.time() - began)
        target = connect(TargetOptions(kubeconfig=place.kubeconfig, warn=lambda text: print(text, file=sys.stderr)))
        watched = Watched(one, then=lambda: place.shell(one.later))
        while not watched.enough(derive(target.job(place.namespace, "run"))):
            time.sleep(0.5)
        record(one, watched.recorded, (place.namespace, "corpus"))
        return watched.told()


def make_here(one: Situation) -> Told:
    """The same, on the local target."""
    from kitctl.targets import TargetOptions  # noqa: PLC0415  with the state folder of this run
    from kitctl.targets.local import connect  # noqa: PLC0415

    name = one.file.removesuffix(".json")
    target = connect(TargetOptions(warn=lambda text: print(text, file=sys.stderr)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path, text in one.files.items():
            (folder / path).write_text(text)
        again: tuple[str, ...] = ()
        if one.before:
            (folder / "train.py").write_text(one.before)
            kitctl(folder, "submit", "--name", name, "--nodes", "2", *one.options, "--wait", "train.py")
            again = ("--replace", "--resume")
        (folder / "train.py").write_text(one.script)
        began = time.time()
        words = ("--name", name, "--nodes", "2", *one.options, *again, "train.py", *one.arguments)
        submitted = kitctl(folder, "submit", *words)
        if submitted.returncode:
            return refused(one, submitted.stderr, seconds=time.time() - began)
        watched = Watched(one)
        while not watched.enough(derive(target.job("default", name))):
            time.sleep(0.5)
        kitctl(folder, "delete", name, "-y")
        record(one, watched.recorded)
        return watched.told()


def refused(one: Situation, errors: str, *, seconds: float) -> Told:
    """What is told by ``submit`` itself, before anything is created."""
    text = " ".join(errors.partition("error: ")[2].split())
    cause, _, fix = text.partition(" fix: ")
    found = Explanation(cause=cause, fix=fix, go_on="", fact="", evidence=())
    return judge(one, found, seconds=seconds, phase=REFUSED)


class Watched:
    """What is told of a job while it runs, and the state that it was told of."""

    def __init__(self, one: Situation, *, then: Callable[[], object] = lambda: None) -> None:
        self._one = one
        self._then = then  # once its ranks run
        self._began = time.time()
        self._running = 0.0
        self._seconds: float | None = None
        self._found: Explanation | None = None
        self._seen: JobState | None = None
        self._last: JobState | None = None
        self.wrong = ""  # another cause that was told before

    def enough(self, state: JobState) -> bool:
        """Look at the state; returns whether the job has ended, or all is told. Of a healthy one the worst counts."""
        now = time.time()
        self._last = state
        if not self._running and state.phase != "Pending" and state.world_size:
            self._running = now
            self._then()
        found = explain(state, now)
        worse = self._found is None or (bool(found.cause) and not self._found.cause) or not self._one.healthy
        told = found.headline or found.note
        if found.cause and not self._one.healthy and not re.search(self._one.cause, told):
            self.wrong = self.wrong or found.cause
        if told and worse:
            self._found, self._seen = found, state
            self._seconds = now - (self._running or self._began)
        right = not self._one.healthy and bool(re.search(self._one.cause, told))
        return right or state.finished or now > self._began + LIMIT

    @property
    def recorded(self) -> JobState:
        """The state that it was told of, or the last one."""
        state = self._seen or self._last
        assert state
        return state

    def told(self) -> Told:
        """What was told, judged."""
        assert self._last
        found = self._found or explain(self._last, time.time())
        return judge(self._one, found, seconds=self._seconds, phase=self._last.phase, before=self.wrong)


def record(one: Situation, state: JobState, name: tuple[str, str] = ("", "")) -> None:
    """Keep it for the fast tests, without this machine's paths, and a name that chance has given."""
    text = encoding.encode(state).decode()
    here = os.environ["XDG_STATE_HOME"], tempfile.gettempdir(), sys.prefix, sys.base_prefix, str(REPOSITORY)
    for path in here:
        text = text.replace(path, "/here")
    text = text.replace(*name) if name[0] else text
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / one.file).write_text(text + "\n")


def main(names: list[str]) -> None:
    """Run all, or those that are named."""
    chosen = [one for one in SITUATIONS if not names or one.name in names]
    if not on_cluster.answers():
        skipped = [one.name for one in chosen if one.on == "cluster"]
        print(f"no cluster answers (make cluster-up): {len(skipped)} situations stay as they were recorded")
        chosen = [one for one in chosen if one.on == "local"]
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        with ThreadPoolExecutor(JOBS_TOGETHER) as pool:
            results = []
            for told in pool.map(make, chosen):
                print(
                    told.situation.name,
                    told.cause,
                    told.fix,
                    told.seconds,
                    told.phase,
                    told.said,
                    f"BEFORE: {told.before}" if told.before else "",
                    sep=" | ",
                    flush=True,
                )
                results.append(told)
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for told in results:
        known = {"seconds": told.seconds and round(told.seconds), "phase": told.phase}
        known |= {"before": told.before} if told.before else {}
        measured[told.situation.name] = known | (
            {"said": told.said, "advised": told.advised} if told.phase == REFUSED else {}
        )
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    PAGE.write_text(current_page())


def recorded(one: Situation) -> Told:
    """What the rules tell of the recorded state now, and what was measured when it was live."""
    measured = json.loads(MEASURED.read_text())[one.name]
    seconds, phase = measured["seconds"], measured["phase"]
    if phase == REFUSED:
        found = Explanation(cause=measured["said"], fix=measured["advised"], go_on="", fact="", evidence=())
    else:
        state = encoding.decode((FOLDER / one.file).read_bytes(), JobState)
        # The fact's age is that of the recording: the standstill began so long before.
        now = state.standstill.since + (seconds or 0) if state.standstill else 0.0
        found = explain(state, now)
    return judge(one, found, seconds=seconds, phase=phase, before=measured.get("before", ""))


if __name__ == "__main__":
    main(sys.argv[1:])
