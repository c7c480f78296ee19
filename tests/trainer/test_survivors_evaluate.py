"""A rank dies while all evaluate: the others go on, and it is done again, or told where a loop cannot do that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.rank.snapshots.folder.ledger import audit
from kittrain.rank.training.live_run import AFTER_STEP
from kittrain.rank.world.order import Cursor
from tests.exact import assert_ends_as_undisturbed, committed, undisturbed
from tests.trainer.nodes import SCRIPTS
from tests.trainer.test_survivors import EPOCHS, ORDER, STEPS, WORKLOAD, Survivors

pytestmark = [pytest.mark.slow, pytest.mark.wide]


class Evaluating(Survivors):
    """Nodes whose loop evaluates."""

    def __init__(self, folder: Path, **env: str) -> None:
        super().__init__(folder, "3", **env)
        self._command = (str(SCRIPTS / "evaluating_loop.py"), *self._command[2:])


@pytest.mark.parametrize("loop", [{}, {"FIT": "1"}], ids=["own", "fit"])
def test_a_rank_dies_in_an_evaluation_within_an_epoch_and_the_others_live_on(
    tmp_path: Path, loop: dict[str, str]
) -> None:
    marker = tmp_path / "died"
    with Evaluating(tmp_path, DIES=str(marker), **loop) as nodes:
        nodes.start(0, 1, 2)
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0]
        assert marker.exists()
        assert len(list(nodes.records.glob("*.jsonl"))) == 4, "one rank is new"
        told = [int(line.split()[-1]) for line in nodes.everything().splitlines() if "evaluated after step" in line]
        again = "FIT" in loop
        assert nodes.everything().count(AFTER_STEP.format(15)) == 1 - again
        assert told == [step for step in range(5, STEPS + 1, 5) if step != 15 or again]
        assert audit(committed(nodes.snapshots), ORDER) == Cursor(EPOCHS, 0)
    command = ["-m", "tests.trainer.scripts.evaluating_loop", *WORKLOAD[2:]]
    assert_ends_as_undisturbed(nodes.snapshots, nodes.records, undisturbed(command, tmp_path, ranks=3, **loop))
