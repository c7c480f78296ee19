"""A rank goes on in another round only if it can, and has left the last one in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kittrain.agent.processes.kept_ranks import KeptRanks, LivingRank
from kittrain.agent.processes.ranks import RankFiles
from kittrain.system import heartbeat
from kittrain.system.heartbeat import HeartbeatWriter

# Answers each order, or none, and prints what it is told.
RANK = """
import json, sys
from pathlib import Path
from kittrain.system.heartbeat import HeartbeatWriter
page, pipe, can, answers = HeartbeatWriter(Path(sys.argv[1])), sys.argv[2], sys.argv[3] == "1", sys.argv[4] == "1"
page.survives(can=can)
print("ready", flush=True)
for line in open(pipe):
    order = json.loads(line)
    if answers and "round" not in order:
        page.left(*order.values())
    if "round" in order:
        print(json.dumps(order["round"]), flush=True)
"""


class Started:
    def __init__(self, folder: Path, number: int, *, can: bool, answers: bool) -> None:
        self.files = RankFiles(folder, number)
        heartbeat.prepare(self.files.heartbeat)
        os.mkfifo(self.files.rounds)
        words = [str(self.files.heartbeat), str(self.files.rounds), str(int(can)), str(int(answers))]
        command = [sys.executable, "-c", RANK, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        self.output = self.process.stdout


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[KeptRanks, list[Started]]]:
    shapes = [(True, True), (False, True), (True, False), (True, True)]
    ranks = [Started(tmp_path, number, can=can, answers=answers) for number, (can, answers) in enumerate(shapes)]
    kept = KeptRanks()
    for number, one in enumerate(ranks):
        kept.add(number, LivingRank(process=one.process, files=one.files))
    yield kept, ranks
    for one in ranks:
        one.process.kill()
        one.process.wait()
        one.output.close()


@pytest.mark.parametrize("agreed", [None, 0.5])
def test_those_that_have_left_in_time_are_told_of_the_next_round(
    kept: tuple[KeptRanks, list[Started]], tmp_path: Path, agreed: float | None
) -> None:
    ranks, (first, unable, _, dead) = kept
    dead.process.kill()
    dead.process.wait()
    ranks.leave(agreed=agreed)
    ranks.leave(agreed=agreed)  # the agent may notice twice that a round is over
    assert ranks.pids == {first.process.pid}
    next_round = tmp_path / "next"
    next_round.mkdir()
    going_on = ranks.begin()
    assert list(going_on) == [0]
    assert not ranks.waiting
    going_on[0].files.move(RankFiles(next_round, 7))
    going_on[0].files = RankFiles(next_round, 7)
    assert sorted(one.name for one in next_round.iterdir()) == ["7.heartbeat", "7.rounds"]
    assert going_on[0].begin({"RANK": "7"})
    assert json.loads(first.output.readline()) == {"RANK": "7"}
    HeartbeatWriter(RankFiles(next_round, 7).heartbeat)  # the rank's own page, under its new name
    assert unable.process.wait(30) == 0, "it ends by itself, as nobody tells it anything any more"


def test_it_is_known_that_a_rank_waits_for_the_end_of_its_round(kept: tuple[KeptRanks, list[Started]]) -> None:
    ranks, (first, *_) = kept
    seen = [ranks.wait]
    HeartbeatWriter(first.files.heartbeat).survives(can=True, waits=True)
    seen.append(ranks.wait)
    ranks.leave(agreed=0.5)
    seen.append(ranks.wait)
    assert seen == [False, True, False]
