"""A network is cut in two: agents without ranks, each on a machine of its own, with the real hubs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.recovery.network import Machine, Network

pytestmark = [pytest.mark.slow, pytest.mark.needs_root, pytest.mark.timeout(1800)]

LIMIT = 200.0  # seconds until a test fails
AGENT = """
import sys, time
from torch.distributed.elastic.rendezvous import RendezvousError
from kittrain.agent.rendezvous.hub_backend import HubBackend
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.interface import RoundOver
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import node_env
from contextlib import nullcontext

address, node, settings = sys.argv[1], node_env(), RendezvousSettings(join_timeout=600)
if node.history_folder:
    (node.history_folder / f"node-{node.node_index}").mkdir(parents=True, exist_ok=True)
with hub_process(node, settings, secret=b"x" * 32) if node.hosts_rendezvous else nullcontext():
    backend = HubBackend(node, settings, started_at=time.time(), secret=b"x" * 32)
    while True:
        try:
            backend.connect(deadline=time.monotonic() + 600)
            rendezvous = backend.handler(address)
            while True:
                info = rendezvous.next_rendezvous()
                info.store.set(f"here/{info.rank}", "1")
                info.store.multi_get([f"here/{rank}" for rank in range(info.world_size)])
                print(f"round of {info.world_size}", flush=True)
                while not rendezvous.num_nodes_waiting():
                    time.sleep(0.05)
        except RendezvousError as error:
            print(f"stopped: {error}", flush=True)
            rendezvous.leave()
"""


class Agents:
    """Agents, and what each has printed."""

    def __init__(self, machines: Sequence[Machine], folder: Path, env: dict[str, str]) -> None:
        self.machines = machines
        self._logs = [folder / f"{index}.log" for index in range(len(machines))]
        self._env = {"PET_NNODES": f"1:{len(machines)}", "PET_RDZV_ENDPOINT": f"{machines[0].address}:29400"} | env
        self._processes = [self._start(index) for index in range(len(machines))]

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        machine = self.machines[index]
        command = machine.command([sys.executable, "-P", "-c", AGENT, machine.address])
        variables = [f"{name}={text}" for name, text in (self._env | {"KIT_NODE_INDEX": str(index)}).items()]
        with self._logs[index].open("ab") as log:
            return subprocess.Popen(["env", *variables, *command], stdout=log, stderr=log, cwd="/", process_group=0)

    def replace(self, *indices: int) -> None:
        """End the processes of some machines, and start new ones."""
        for index in indices:
            os.killpg(self._processes[index].pid, signal.SIGKILL)
            self._processes[index].wait()
        for index in indices:
            self._processes[index] = self._start(index)

    def has_printed(self, index: int, text: str) -> int:
        return self._logs[index].read_text().count(text)

    def until(self, text: str, *indices: int, times: int = 1) -> None:
        deadline = time.monotonic() + LIMIT
        while any(self.has_printed(index, text) < times for index in indices):
            logs = "\n".join(log.read_text() for log in self._logs)
            assert time.monotonic() < deadline, f"not {text!r} by {indices}:\n{logs}"
            time.sleep(0.05)

    def cut(self, *indices: int) -> None:
        """Cut some machines off from the others; they still reach each other."""
        switch = ("ip", "netns", "exec", self.machines[0].switch)
        subprocess.run([*switch, "ip", "link", "add", "other", "type", "bridge"], check=True)
        subprocess.run([*switch, "ip", "link", "set", "other", "up"], check=True)
        for index in indices:
            subprocess.run([*switch, "ip", "link", "set", self.machines[index].cable, "master", "other"], check=True)

    def heal(self, *indices: int) -> None:
        """Undo ``cut``."""
        switch = ("ip", "netns", "exec", self.machines[0].switch)
        for index in indices:
            subprocess.run([*switch, "ip", "link", "set", self.machines[index].cable, "master", "bridge"], check=True)


@contextmanager
def agents(size: int, folder: Path, **env: str) -> Iterator[Agents]:
    """A round of all of them, which may go on with fewer."""
    with Network(size) as network:
        found = Agents(network.machines, folder, env)
        found.until(f"round of {size}", *range(size))
        yield found


@pytest.mark.parametrize("minority", [(0,), pytest.param((1,), marks=pytest.mark.wide)])
def test_the_majority_goes_on_and_the_others_stop_until_they_meet_again(tmp_path: Path, minority: tuple[int]) -> None:
    rest = [index for index in range(3) if index not in minority]
    with agents(3, tmp_path) as three:
        three.cut(*minority)
        three.until("round of 2", *rest)
        three.until("stopped: only 1 of the 3 nodes of round", *minority)
        assert not three.has_printed(minority[0], "round of 1")
        three.heal(*minority)
        three.until("round of 3", 0, 1, 2, times=2)


@pytest.mark.long
@pytest.mark.parametrize("survivor", [0, 1, 2])
def test_one_of_three_finds_those_that_replace_two_lost_machines(tmp_path: Path, survivor: int) -> None:
    lost = [index for index in range(3) if index != survivor]
    with agents(3, tmp_path) as three:
        three.cut(*lost)
        three.until("stopped: only 1 of the 3 nodes of round", survivor)
        three.replace(*lost)
        three.heal(*lost)
        three.until("round of 3", *range(3), times=2)
        assert not three.has_printed(survivor, "round of 1")


@pytest.mark.wide
def test_of_two_halves_neither_goes_on_without_a_folder(tmp_path: Path) -> None:
    with agents(2, tmp_path) as two:
        two.cut(1)
        two.until("stopped: only 1 of the 2 nodes of round", 0, 1)
        two.heal(1)
        two.until("round of 2", 0, 1, times=2)
        assert not any(two.has_printed(index, "round of 1") for index in range(2))


@pytest.mark.wide
def test_of_two_halves_one_goes_on_with_a_shared_folder(tmp_path: Path) -> None:
    snapshots = tmp_path / "snapshots"
    snapshots.mkdir()
    with agents(2, tmp_path, KIT_SNAPSHOT_DIR=str(snapshots)) as two:
        two.cut(1)
        deadline = time.monotonic() + LIMIT
        while not any(two.has_printed(index, "round of 1") for index in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        other = 0 if two.has_printed(1, "round of 1") else 1
        two.until("stopped: only 1 of the 2 nodes of round", other)
        assert not two.has_printed(other, "round of 1")
        two.heal(1)
        two.until("round of 2", 0, 1, times=2)
