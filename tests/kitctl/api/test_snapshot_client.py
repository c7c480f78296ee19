"""kitctl reads the output of the trainer's snapshot commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from kitctl.api import snapshot_client
from kitctl.base import names
from kitctl.base.errors import TargetError
from kitctl.output.view import audit as audit_view
from kitctl.output.view import snapshots as view
from kitjob import history, typed
from kittrain import Run, attach
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.__main__ import COMMANDS, parser
from tests.trainer import runs


def answer(folder: Path, *words: str) -> bytes:
    options = parser().parse_args(["--folder", str(folder), *words])
    return b"".join(COMMANDS[options.command](options))


def keys(value: Any) -> Any:
    """The keys of a value, recursively."""
    match value:
        case dict():
            return {key: keys(one) for key, one in value.items()}
        case list():
            return keys(value[0]) if value else None
        case _:
            return None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("list",), list[history.SnapshotFacts]),
        (("verify",), list[history.SnapshotFacts]),
        (("show",), history.SnapshotDetails),
        (("prune", "--keep", "1"), list[history.SnapshotFacts]),
        (("audit",), history.Audit),
    ],
    ids=["list", "verify", "show", "prune", "audit"],
)
def test_kitctl_reads_every_field(tmp_path: Path, words: tuple[str, ...], kind: Any) -> None:
    runs.run(tmp_path, 2, 5)
    (tmp_path / "step-00000002-g0001" / "manifest.json").write_text("{}")
    runs.run(tmp_path, 1, 7, generation=2)
    output = answer(tmp_path, *words)
    known = typed.encode(snapshot_client.parse(output, kind))
    assert without_chain(keys(json.loads(output))) == keys(known)


def without_chain(form: Any) -> Any:
    """Remove the hashes, which only the trainer uses."""
    if not isinstance(form, dict):
        return form
    return {key: without_chain(one) for key, one in form.items() if key != "chain"}


def test_a_loop_with_a_loader_of_its_own_has_snapshots_and_nothing_to_prove(tmp_path: Path) -> None:
    with Run(attach(env=RankEnv(run_id="run", snapshot_dir=tmp_path)), model=nn.Linear(1, 1)) as run:
        for _ in run.steps(4):
            run.step()
    audit = snapshot_client.parse(answer(tmp_path, "audit"), history.Audit)
    assert not audit.holds
    (line,) = audit_view.page(audit, wide=False)
    assert line == (
        "nothing to prove: which samples a step took is not recorded, since the script takes its batches from a loader "
        "of its own; 4 steps in one unbroken history, by 1 generation (0 restarts; 1 rank), in 1 entry; "
        "from step-00000004-g0001"
    )
    assert "Run(..., data=data)" in audit_view.fix(audit)
    (listed,) = snapshot_client.parse(answer(tmp_path, "list"), list[history.SnapshotFacts])
    assert (listed.step, listed.epoch) == (4, None)
    shown = "\n".join(view.page(snapshot_client.parse(answer(tmp_path, "show"), history.SnapshotDetails), 0.0))
    assert "Step           4\n" in shown
    assert "Data           from a loader of the script's own" in shown


def test_the_trainer_accepts_kitctls_commands() -> None:
    assert names.SNAPSHOTS == ("kittrain.rank.snapshots", "--folder")


def test_an_answer_of_another_version_is_an_error_with_a_fix() -> None:
    with pytest.raises(TargetError, match="unexpected output") as error:
        snapshot_client.parse(b"step 5\n", list[history.SnapshotFacts])
    assert "kitctl's version" in error.value.fix
