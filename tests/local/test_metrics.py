"""The metrics of a job that loses a rank and recovers, read by Prometheus' own parser and by Prometheus itself."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kittrain.system.port import listen
from tests.local.prometheus import promtool, server

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SCRIPT = Path(__file__).parent / "scripts" / "losses.py"
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}


def free_port() -> int:
    with listen("127.0.0.1", 0) as found:
        port: int = found.getsockname()[1]
        return port


def scraped(port: int, **headers: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def samples(port: int) -> dict[str, float]:
    """All samples of a node, by name and the values of their labels; none while nobody listens."""
    try:
        text = scraped(port, **OPENMETRICS)
    except OSError:
        return {}
    return {
        "/".join((one.name, *one.labels.values())).removeprefix("kittrain_"): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def until(read: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 240
    while not holds(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def start(kit: Kit, port: int, *more: str, script: str = "400") -> None:
    records = kit.folder / "records"
    records.mkdir()
    given = ("--nodes", "2", "--metrics", "--set", f"metrics.port={port}", "--snapshot-every", "20", *more)
    kit.run("submit", "--name", "measured", *given, "--", str(SCRIPT), str(records), script, "20")


def charted(kit: Kit) -> list[int]:
    """The steps whose loss TensorBoard shows, in its order."""
    (folder,) = (kit.snapshots("measured") / "history").glob("*/tensorboard")
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [one.step for one in events.Scalars("loss_metrics/global_avg_loss")]


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_that_recovers_tells_what_it_cost(kit: Kit) -> None:
    port = free_port()
    start(kit, port, "--set", "metrics.tensorboard=true")
    # Rank 0 tells its samples a moment after the step that its heartbeat shows.
    first = until(lambda: samples(port), lambda found: found.get("snapshots_total", 0) >= 1 and _agree(found))
    assert first["world_size"] == 2
    assert first["snapshot_bytes_total"] > 0
    assert first["data_wait_seconds_total"] > 0
    (pid,) = {int(child) for child in children(kit.agent("measured", 1)) if "kit-rank" in comm(child)}
    os.kill(pid, signal.SIGKILL)
    after = until(lambda: samples(port), lambda found: found.get("recoveries_total", 0) >= 1 and "loss" in found)
    assert after["faults_total"] == 1
    assert after["recovery_seconds_total/start"] > 0
    assert after["badput_seconds_total/recovery"] > 0
    for name, value in first.items():
        if "_total" in name:
            assert after[name] >= value, name
    assert samples(port + 1).get("world_size") == 2  # node 1
    steps = until(lambda: charted(kit), lambda found: found[-1] > first["step"])
    assert steps == sorted(set(steps)), "each once, though some were taken twice"
    assert len([*kit.snapshots("measured").glob("history/*/tensorboard/events.out.*")]) == 2


@pytest.mark.slow
def test_unless_asked_nothing_listens(kit: Kit) -> None:
    port = free_port()
    (kit.folder / "records").mkdir()
    given = ("--nodes", "1", "--set", f"metrics.port={port}")
    kit.run("submit", "--name", "plain", *given, "--", str(SCRIPT), str(kit.folder / "records"), "400", "20")
    kit.until("plain", lambda state: (state["progress"] or {}).get("step"))
    assert samples(port) == {}
    assert "metrics at" not in kit.read("logs", "plain")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_prometheus_scrapes_it(kit: Kit, tmp_path: Path) -> None:
    port = free_port()
    start(kit, port)
    until(lambda: samples(port), lambda found: found.get("step_seconds_count", 0) > 5)
    checked = subprocess.run(
        [promtool(), "check", "metrics"], input=scraped(port), check=False, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    with server(tmp_path, f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}") as ask:
        until(lambda: ask("sum(up)"), lambda found: found == [2.0])
        assert until(
            lambda: ask("sum(rate(kittrain_goodput_seconds_total[20s]))"), lambda found: found and found[0] > 0
        )
        assert ask("max(kittrain_world_size)") == [2.0]


def children(pid: int) -> list[str]:
    """All descendants of a process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [*found, *(one for child in found for one in children(int(child)))]


def comm(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _agree(found: dict[str, float]) -> bool:
    """Whether there are eight samples for each step."""
    return bool(found["samples_total"] >= 8 * found["step_seconds_count"] > 0)
