"""A framework's cases as a table: where training is interrupted, and that it ends as if it had not been.

One process group of three ranks runs all cases of a framework, so that its imports are paid for once. A case
interrupts training by an exception at a hook, which leaves the files that a kill leaves there, or by SIGTERM to one
rank. For each framework one case is a job whose rank is really killed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.frameworks.jobs import kitctl
from tests.frameworks.ranks import SCRIPTS, log, run

RANKS: Final = 3
TABLE_SECONDS: Final = 1500  # for all cases of a table, on a busy machine
UNDISTURBED: Final = "undisturbed "


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """Where a case is interrupted; the fields are those of ``scripts/matrix.py``."""

    event: str
    step: int
    drain: bool = False
    part: int = 0
    nth: int = 1

    def __str__(self) -> str:
        part = f" of part {self.part}" if self.part else ""
        number = f" number {self.nth}" if self.nth > 1 else ""
        return f"{'drain' if self.drain else 'kill'} {self.event}{number} {self.step}{part}"


def kills(event: str, *steps: int, part: int = 0, nth: int = 1) -> list[Interruption]:
    """A kill at an event, after each of these numbers of finished steps."""
    return [Interruption(event=event, step=step, part=part, nth=nth) for step in steps]


def drains(event: str, *steps: int, part: int = 0) -> list[Interruption]:
    """A SIGTERM at an event; the ranks agree on it with the next step."""
    return [Interruption(event=event, step=step, drain=True, part=part) for step in steps]


Table = Mapping[str, tuple[dict[str, Any], Sequence[Interruption]]]  # by name: a configuration, and what interrupts it


def rows(table: Table) -> list[tuple[str, Interruption]]:
    """A table's cases."""
    return [(name, interruption) for name, (_, interruptions) in table.items() for interruption in interruptions]


def results(script: str, table: Table, folder: Path) -> list[dict[str, Any]]:
    """What each rank found, by case; run once for a table."""
    cases = [{"id": UNDISTURBED + name, "config": config, "interruption": {}} for name, (config, _) in table.items()]
    cases += [
        {"id": f"{name} {one}", "config": table[name][0], "interruption": asdict(one)} for name, one in rows(table)
    ]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    codes = run(script, folder, size=RANKS, seconds=TABLE_SECONDS)
    assert codes == [0] * RANKS, log(folder)[-10_000:]
    return [json.loads((folder / f"results-{rank}.json").read_bytes()) for rank in range(RANKS)]


def check(found: list[dict[str, Any]], name: str, interruption: Interruption) -> None:
    """A case was interrupted, and its state is that of the undisturbed one, on each rank."""
    for results_of_rank in found:
        case, whole = results_of_rank[f"{name} {interruption}"], results_of_rank[UNDISTURBED + name]
        assert case["ended"] == ("drained" if interruption.drain else "killed")
        _compare(case["facts"], whole["facts"], ended=interruption.event == "after")


def check_job(
    script: str, config: dict[str, Any], interruption: Interruption, whole: dict[str, Any], folder: Path
) -> str:
    """The same for a job of three nodes, and rank 1 killed; returns the job's log."""
    case, flag = folder / "case.json", folder / "killed"
    content = {"config": config, "interruption": asdict(interruption), "flag": str(flag)}
    case.write_text(json.dumps(content), encoding="utf-8")
    every = ("--snapshot-every", str(config.get("every", 2)))
    name = Path(script).stem.replace("_", "-")
    kitctl("submit", "--nodes", str(RANKS), "--name", name, *every, "--", str(SCRIPTS / script), str(case))
    try:
        kitctl("wait", name, "--timeout", "600s")
        logs = kitctl("logs", name)
    finally:
        kitctl("delete", name)
    assert flag.exists()
    facts = json.loads((folder / "facts-0.json").read_bytes())
    for mine, other in zip(facts, whole["facts"], strict=True):
        assert all(row in other["rows"] for row in mine["rows"])
        mine["rows"] = other["rows"]  # those of the killed process are lost with it
    _compare(facts, whole["facts"], ended=False)
    return logs


def _compare(facts: list[dict[str, Any]], whole: list[dict[str, Any]], *, ended: bool) -> None:
    """Compare the parts of a script, fact by fact.

    Args:
        facts: of the interrupted one.
        whole: of the undisturbed one.
        ended: training had ended before; else what it returns covers the steps since the resume.
    """
    assert len(facts) == len(whole)
    for part, (mine, other) in enumerate(zip(facts, whole, strict=True)):
        names = [name for name in other if ended or name != "result"]
        assert {name: mine[name] for name in names} == {name: other[name] for name in names}, f"part {part}"
