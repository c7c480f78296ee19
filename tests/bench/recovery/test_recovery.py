from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bench import measure
from bench.recovery.faults import FAULTS, Fault, Trial
from bench.recovery.network import Network, ip
from bench.recovery.recovery import TRIALS, missing, next_batch
from bench.recovery.table import parts, publish, row

RANK, NODE = FAULTS[0], FAULTS[1]


def trial(rival: str, fault: Fault, seconds: float | None = 1.0, **more: object) -> Trial:
    return Trial(rival=rival, fault=fault.name, took=10, seconds=seconds, **more)  # type: ignore[arg-type]


def whole(rival: str, times: int) -> list[Trial]:
    return [trial(rival, fault) for fault in FAULTS for _ in range(times)]


def test_a_round_starts_with_the_first_rival_and_the_faults_of_one_shape() -> None:
    assert next_batch([], list(TRIALS)) == ("kitctl", [fault for fault in FAULTS if fault.shape == "2:3"])


def test_a_run_continues_where_the_last_one_stopped() -> None:
    done = [*whole("kitctl", 1), trial("kitctl, own loop", RANK)]
    rest = [fault for fault in FAULTS if fault.shape == "2:3" and fault != RANK]
    assert next_batch(done, list(TRIALS)) == ("kitctl, own loop", rest)


def test_rivals_with_all_trials_are_skipped() -> None:
    done = [one for rival in TRIALS if rival != "stock torchrun" for one in whole(rival, 10)]
    assert {rival for rival, _ in missing(done, list(TRIALS))} == {"stock torchrun"}
    assert next_batch([*done, *whole("stock torchrun", 3)], list(TRIALS)) is None


def test_a_row_counts_dead_jobs_and_compares_the_rest_to_tuned() -> None:
    trials = [
        *(trial("kitctl", NODE, seconds, lost=2, pause=0.5, phases=(0.5, 1.0)) for seconds in (1.0, 2.0, 3.0)),
        trial("tuned torchrun", NODE, 8.0),
        trial("stock torchrun", NODE, None),
    ]
    ours = row(trials, NODE, "kitctl")
    assert ours[:4] == (NODE.name, "kitctl", "3", "2.00")
    assert ours[5:] == ("0.25", "0.25", "2", "0.50", "0.50 + 0.50")
    assert row(trials, NODE, "stock torchrun")[2:4] == ("1, 1 dead", "-")
    assert row(trials[:1], NODE, "kitctl", ("", "", "", "4.00"))[5] == "0.25"
    assert parts(trials[:3]) == [0.5, 0.5]
    assert parts([trial("kitctl", NODE, phases=(0.1, -12.0, 0.15))]) == pytest.approx([0.1, 0.0, 0.05])


@pytest.mark.needs_root
def test_a_machine_can_be_disconnected_and_reconnected() -> None:
    with Network(2) as network:
        here, there = network.machines
        code = "import socket; s = socket.create_server(('', 7000)); print('ready', flush=True)\nwhile True: s.accept()"
        command = here.command([sys.executable, "-c", code])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout
            assert server.stdout.readline() == b"ready\n"
            assert here.pids() == [server.pid]
            probe = f"import socket; socket.create_connection(('{here.address}', 7000), timeout=2)"
            reach = there.command([sys.executable, "-c", probe])
            assert not subprocess.run(reach, check=False).returncode
            here.disconnect()
            assert b"timed out" in subprocess.run(reach, check=False, stderr=subprocess.PIPE).stderr
            here.reconnect()
            assert not subprocess.run(reach, check=False).returncode
            here.kill()
        assert here.pids() == []


@pytest.mark.needs_root
def test_namespaces_are_removed_also_those_of_killed_runs() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = f"kit-bench-{ended.pid}-0"
    ip("netns", "add", left)
    with suppress(KeyboardInterrupt), Network(1) as network:
        assert Path("/run/netns", network.machines[0].name).exists()
        raise KeyboardInterrupt
    names = ip("netns", "list")
    assert left not in names
    assert network.machines[0].name not in names


def test_a_row_without_trials_on_this_machine_stays_and_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(measure, "RAW", tmp_path / "raw")
    publish("recovery", [trial("stock torchrun", NODE, None)])
    (tmp_path / "raw" / "recovery.json").unlink()
    for _ in range(2):
        publish("recovery", [trial("kitctl", NODE, lost=0, phases=(1.0,))])
    rows = {one[1]: one[2:4] for one in measure.earlier_rows("recovery")}
    assert rows == {"kitctl": ("1", "1.00"), "stock torchrun": ("1, 1 dead *", "-")}
    assert "Rows with a star" in (tmp_path / "results" / "recovery.json").read_text(encoding="utf-8")
