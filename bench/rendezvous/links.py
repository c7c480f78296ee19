"""Whether nodes are taken for lost that are not: many agents, a busy machine, bad links; then a machine is cut off.

python -m bench.rendezvous.links --minutes 60

Needs root. The agents have no ranks, and are threads of a few processes, in three network namespaces: the hub, and half
of the agents each behind a link that drops packets, and one that is silent for a while again and again.
"""

from __future__ import annotations

import argparse
import os
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from bench.measure import Result, earlier_rows, save
from bench.recovery.network import Machine, Network
from bench.rendezvous.agents import SECRET, AgentConfig, HubAgent, kit_env
from kittrain.agent.rendezvous.hub_process import hub_process
from kittrain.agent.rendezvous.interface import LOST
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.system.port import raise_fd_limit

PORT: Final = 29400
LOSS: Final = 0.05  # of the packets that the first machine's agents would receive, and of those that they send
SILENCE: Final = 2.0  # seconds of a black-out
BETWEEN: Final = 30.0  # seconds from one black-out to the next
BUSY: Final = 20  # processes that do nothing but compute
PROCESSES: Final = 2  # for the agents of a machine
LOOK: Final = 0.25  # seconds between two looks of an agent, which wakes up at once if the hub sends something
DISABLED, FORWARDING = 0, 3  # states of a port of a bridge
URGENT: Final = -20  # the priority of this process, so that a black-out is as long as it says
LIMIT: Final = 600.0  # seconds until all agents have their round, and until a real loss has been noticed
CHILD: Final = (sys.executable, "-P", "-m", "bench.rendezvous.links")

NOTE: Final = f"""\
Agents without ranks, half of them on each of two machines (network namespaces), with the hub on a third; default
settings (`policy.lostAfter`: 3s). One machine's link drops {100 * LOSS:.0f} % of all packets in each direction, the
other's is silent for {SILENCE:.0f} s every {BETWEEN:.0f} s. {BUSY} processes beside them keep the cores busy. Lost:
agents whose round ended; goal: none. Then the second machine's cable is cut for good: seconds until all agents of the
first one, and all behind the cut, know that their round is over. Goal: 3 s; an agent here looks every {LOOK:.2f} s, and
{PROCESSES} processes run all of a machine."""
DROP: Final = ("-m", "statistic", "--mode", "random", "--probability", str(LOSS), "-j", "DROP")


class Agents:
    """The agents of one machine, in processes of their own.

    Args:
        machine: that they are on.
        hub: its address.
        size: of the job.
        indices: of these nodes.
    """

    def __init__(self, machine: Machine, *, hub: str, size: int, indices: Sequence[int]) -> None:
        self._size = len(indices)
        self._lines: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self._processes = [
            _child(machine, "agents", hub, machine.address, str(size), *map(str, indices[number::PROCESSES]))
            for number in range(PROCESSES)
        ]
        for one in self._processes:
            threading.Thread(target=self._read, args=(one,), daemon=True).start()

    def await_formed(self) -> None:
        """Wait until all have their round."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count("formed") == self._size, LIMIT):
                raise TimeoutError(f"{self._count('formed')} of {self._size} agents have a round")

    def alarms(self) -> list[str]:
        """What the agents that have lost their round were told, or have seen."""
        return [text for _, text in self._lines if text.startswith("alarm")]

    def await_alarms(self) -> float:
        """Wait until all have lost their round; returns when the last one did."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count("alarm") == self._size, LIMIT):
                raise TimeoutError(f"{self._count('alarm')} of {self._size} agents know that their round is over")
            return max(moment for moment, text in self._lines if text.startswith("alarm"))

    def kill(self) -> None:
        """End them."""
        for one in self._processes:
            one.kill()
            one.wait()

    def _count(self, word: str) -> int:
        return sum(text.startswith(word) for _, text in self._lines)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            moment, _, text = line.rstrip().partition(" ")
            with self._changed:
                self._lines.append((float(moment), text))
                self._changed.notify_all()


def main() -> None:
    """Measure, and write the table; or be one of its processes."""
    if sys.argv[1:2] == ["agents"]:
        hub, here, size, *indices = sys.argv[2:]
        be_agents(hub, here, int(size), [int(one) for one in indices])
    elif sys.argv[1:2] == ["hub"]:
        be_hub(sys.argv[2], int(sys.argv[3]))
    else:
        parser = argparse.ArgumentParser("bench.rendezvous.links", description=__doc__)
        parser.add_argument("--minutes", type=float, default=60.0, help="in which no node may be taken for lost")
        parser.add_argument("--agents", type=int, default=512)
        args = parser.parse_args()
        save("links", measure(args.agents, args.minutes))


def measure(size: int, minutes: float) -> Result:
    """Run the agents, and cut their machine off in the end."""
    with ExitStack() as stack:
        home, lossy, silent = stack.enter_context(Network(3)).machines
        stack.enter_context(_running(_child(home, "hub", home.address, str(size))))
        halves = {lossy: range(size // 2), silent: range(size // 2, size)}
        groups = [Agents(one, hub=home.address, size=size, indices=indices) for one, indices in halves.items()]
        for group in groups:
            stack.callback(group.kill)
        for group in groups:
            group.await_formed()
        print(f"  {size} agents have their round", flush=True)
        for chain in ("INPUT", "OUTPUT"):
            subprocess.run(lossy.command(["iptables", "-A", chain, *DROP]), check=True)
        switch = Switch(silent)
        stack.callback(switch.close)
        for _ in range(BUSY):
            stack.enter_context(_running(subprocess.Popen([sys.executable, "-c", "while True: pass"])))
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)
        began, loads, black_outs = time.monotonic(), list[float](), list[float]()
        while time.monotonic() < began + 60 * minutes and not any(one.alarms() for one in groups):
            black_outs.append(switch.black_out())
            time.sleep(BETWEEN - SILENCE)
            loads.append(os.getloadavg()[0])
        lasted = (time.monotonic() - began) / 60
        lost = [text for one in groups for text in one.alarms()]
        print(
            f"  {lasted:.1f} minutes, {len(loads)} black-outs of {max(black_outs):.2f} s at most, {lost[:3]}",
            flush=True,
        )
        noticed = ["-", "-"] if lost else _noticed(silent, groups)
    load, cores = f"{statistics.median(loads):.0f}, at most {max(loads):.0f}", str(len(os.sched_getaffinity(0)))
    seen = (str(size), f"{lasted:.0f}", load, f"{len(loads)} of {max(black_outs):.1f} s", str(len(lost)), *noticed)
    others = (row for row in earlier_rows("links") if row[0] != cores)  # taskset allows fewer
    columns = ("agents", "minutes", "load", "black-outs", "lost", "cut off: noticed, s", "behind the cut, s")
    return Result(
        note=NOTE,
        columns=("cores", *columns),
        rows=[*others, (cores, *seen)],
        raw=[{"loads": loads, "black_outs": black_outs, "alarms": lost}],
    )


class Switch:
    """Silences a machine's port of the switch and opens it again, at once: by a process that waits for that.

    After ``Machine.disconnect`` a link may take a second to come up, as the kernel tells of such changes once a second.
    """

    def __init__(self, machine: Machine) -> None:
        self._port = f"link set {machine.cable} type bridge_slave state"
        self._process = subprocess.Popen(
            ["nice", "-n", str(URGENT), "ip", "-n", machine.switch, "-force", "-batch", "-"],
            stdin=subprocess.PIPE,
            text=True,
        )

    def black_out(self) -> float:
        """Drop all packets for a while; returns for how many seconds."""
        began = time.monotonic()
        self._set(DISABLED)
        time.sleep(SILENCE)
        self._set(FORWARDING)
        return time.monotonic() - began

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _set(self, state: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{self._port} {state}\n")
        self._process.stdin.flush()


def _noticed(machine: Machine, groups: Sequence[Agents]) -> list[str]:
    """Seconds until all agents know of a real loss."""
    cut = time.monotonic()
    machine.disconnect()
    return [f"{one.await_alarms() - cut:.1f}" for one in groups]


def be_hub(address: str, size: int) -> None:
    """Run the hub until this process is killed."""
    config = AgentConfig(index=0, size=size, port=PORT, address=address, fewest=size)
    with hub_process(kit_env(config), RendezvousSettings(), secret=SECRET) as process:
        process.wait()


def be_agents(hub: str, here: str, size: int, indices: Sequence[int]) -> None:
    """Run some agents, each in a thread, until this process is killed."""
    raise_fd_limit()
    threading.stack_size(512 * 1024)
    for index in indices:
        config = AgentConfig(index=index, size=size, port=PORT, address=hub, here=here, fewest=size)
        threading.Thread(target=_be_agent, args=(config,)).start()


def _be_agent(config: AgentConfig) -> None:
    agent = HubAgent(config)
    agent.connect()
    agent.join()
    _tell("formed")
    poll = select.poll()
    poll.register(agent.rendezvous.descriptor, select.POLLIN)
    try:
        while not agent.rendezvous.num_nodes_waiting():
            poll.poll(1000 * LOOK)
        _tell(f"alarm: node {config.index} was told: {agent.rendezvous.reason}")
    except LOST as error:
        _tell(f"alarm: node {config.index}: {str(error).splitlines()[0]}")


def _tell(text: str) -> None:
    os.write(1, f"{time.monotonic()} {text}\n".encode())  # one write: not mixed with those of other threads


def _child(machine: Machine, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(machine.command([*CHILD, *arguments]), stdout=subprocess.PIPE, text=True)


@contextmanager
def _running(process: subprocess.Popen[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
