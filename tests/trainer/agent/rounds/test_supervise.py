"""What a node does if it cannot find node 0, or loses it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError

from kitjob import timeline
from kitjob.report import Report
from kitjob.timeline import Event
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.report.history import History
from kittrain.agent.rounds import supervise
from kittrain.agent.rounds.drain import Drain
from kittrain.agent.rounds.supervise import Supervisor
from kittrain.agent.setup.preparation import Unreached
from kittrain.job.env import node_env
from kittrain.outcome import marker
from kittrain.outcome.termination import FINISHED, Ending, cut_short
from tests.trainer.nodes import free_port
from tests.trainer.told import Told

NOWHERE = "node-0.invalid"  # RFC 2606: never resolves


def ending_of(
    index: int,
    folder: Path,
    *,
    host: str = NOWHERE,
    timeout: int = 1,
    told: Told | None = None,
    hub: subprocess.Popen[bytes] | None = None,
) -> Ending:
    """The ending of node ``index`` of a 2:3 job with a join timeout of ``timeout`` seconds."""
    node = node_env(
        {
            "PET_NNODES": "2:3",
            "PET_RDZV_ENDPOINT": f"{host}:1",
            "PET_RDZV_CONF": f"join_timeout={timeout}",
            "PET_RDZV_ID": "run",
            "KIT_SNAPSHOT_DIR": str(folder),
            "KIT_NODE_INDEX": str(index),
        }
    )
    settings = RendezvousSettings.from_conf(node.rendezvous_conf)
    history = History(node, print)
    history.listen(Told() if told is None else told)
    return Supervisor(
        node,
        ["train.py"],
        settings=settings,
        secret=None,
        hub=hub,
        zygote=None,
        drain=Drain(),
        scratch=folder,
        history=history,
    ).run()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_PROGRESS_FILE", "")  # the test restores the variables set for the ranks
    monkeypatch.setattr(supervise, "YIELD_TIMEOUT", 0.1)


def test_a_node_beyond_the_minimum_makes_room_for_node_0(tmp_path: Path) -> None:
    assert ending_of(2, tmp_path).outcome == "drained"


def test_a_node_of_the_minimum_waits_for_node_0(tmp_path: Path) -> None:
    ending = ending_of(1, tmp_path)
    assert (ending.outcome, "no rendezvous within 1 s" in ending.reason) == ("retryable", True)


def test_a_node_that_finds_no_way_to_node_0_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Unreached, "waits", lambda _, reason: told.append(reason))
    ending_of(1, tmp_path)
    assert told
    assert told[0].startswith(f"waiting for node 0 at {NOWHERE}:1 ([Errno -")


def test_a_node_that_finds_others_elsewhere_before_it_is_in_a_round_tells_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a node 0 that comes back, and whose place another one has taken."""
    attempts = iter(range(2))

    def attempt(*_: object) -> Ending:
        if next(attempts) == 0:
            raise RendezvousConnectionError("another node serves, at 10.0.0.2:1")
        return FINISHED

    monkeypatch.setattr(Supervisor, "_attempt", attempt)
    assert ending_of(1, tmp_path, told=(told := Told())) == FINISHED
    assert [event.what for event in told.events] == ["ended"]


def test_no_node_makes_room_for_a_scheduled_node_0(tmp_path: Path) -> None:
    assert ending_of(2, tmp_path, host="127.0.0.1").outcome == "retryable"


def test_a_node_that_waits_for_a_finished_node_0_is_done(tmp_path: Path) -> None:
    threading.Timer(0.5, marker.mark, (tmp_path, "run", {})).start()
    assert ending_of(1, tmp_path, host="127.0.0.1", timeout=60) == FINISHED


class LastTail:
    """A destination that keeps the last tail of the history."""

    interval: ClassVar[float] = 60.0

    def __init__(self) -> None:
        self.kept = ""

    def put(self, report: Report, tail: str = "") -> None:  # noqa: ARG002  named as the sinks' own
        self.kept = tail

    def tail(self) -> str:
        return self.kept

    def last(self) -> None:
        """No report of a former run."""


def test_without_a_volume_the_last_report_has_the_end_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    node = node_env({"PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}", "PET_RDZV_ID": "run"})
    history = History(node, print)
    history.open(node)
    sink = LastTail()
    monkeypatch.setattr(supervise, "sink_of", lambda *_: sink)
    settings = RendezvousSettings.from_conf(node.rendezvous_conf)
    with hub_process(node, settings, secret=None) as hub:
        ending = Supervisor(
            node,
            [str(tmp_path / "train.py")],
            settings=settings,
            secret=None,
            hub=hub,
            zygote=None,
            drain=Drain(),
            scratch=tmp_path,
            history=history,
        ).run()
    assert ending.outcome == "done"
    last = [*timeline.lines(sink.kept.encode())][-1]
    assert isinstance(last, Event)
    assert (last.what, last.outcome) == ("ended", "done")
    history.end("done", "said once")
    assert not [line for line in timeline.lines(history.tail().encode()) if "said once" in str(line)]


def ending_after_a_lost_hub(folder: Path, *, join_timeout: int, between: Callable[[], bool]) -> Ending:
    """The ending of a lone node that loses its hub; ``between`` returns whether a new hub follows."""
    script = folder / "first.py"
    script.write_text(
        "import time\nfrom pathlib import Path\n"
        f"mark = Path({str(folder / 'began')!r})\n"
        "if not mark.exists():\n    mark.touch()\n    time.sleep(600)\n"
    )
    node = node_env(
        {
            "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}",
            "PET_RDZV_CONF": f"join_timeout={join_timeout}",
            "PET_RDZV_ID": "run",
            "KIT_SNAPSHOT_DIR": str(folder),
        }
    )
    settings = RendezvousSettings.from_conf(node.rendezvous_conf)
    supervisor = Supervisor(
        node, [str(script)], settings=settings, secret=None, hub=None, zygote=None, drain=Drain(), scratch=folder
    )
    ended = threading.Event()

    def lose() -> None:
        with hub_process(node, settings, secret=None):
            while not (folder / "began").exists() and not ended.is_set():
                time.sleep(0.02)
            again = between()
        if again:
            with hub_process(node, settings, secret=None):
                ended.wait()  # a hub ends with the thread that started it

    with ThreadPoolExecutor() as pool:
        pool.submit(lose)
        try:
            return supervisor.run()
        finally:
            ended.set()


def test_the_join_timeout_restarts_with_each_lost_rendezvous(tmp_path: Path) -> None:
    def outlast() -> bool:
        time.sleep(4.5)
        return True

    ending = ending_after_a_lost_hub(tmp_path, join_timeout=4, between=outlast)
    assert ending == Ending(outcome="done", reason="all ranks succeeded")


def test_a_node_that_loses_the_others_when_the_run_finishes_is_done_and_says_what_it_was_kept_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def finish() -> bool:
        marker.mark(tmp_path, "run", {})
        return False

    assert ending_after_a_lost_hub(tmp_path, join_timeout=60, between=finish) == cut_short(
        "node 0 is lost: the connection was closed"
    )
    assert "joining again" not in capfd.readouterr().out


def test_a_hub_that_ends_before_the_first_round_is_told_at_once(tmp_path: Path) -> None:
    hub = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    ending = ending_of(0, tmp_path, host="127.0.0.1", timeout=600, hub=hub)
    assert hub.poll() == 1
    assert (ending.outcome, ending.reason) == ("retryable", "the rendezvous hub process has exited")
