"""Which runs of trackers are chosen; with the real trackers, tests/frameworks/test_trackers.py shows the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kittrain.agent.hooks.files import trackers
from kittrain.agent.hooks.files.trackers import FILE, Record

FREE = SimpleNamespace(run=None)


@pytest.mark.parametrize("name", ["WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID"])
def test_a_users_variables_choose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers._wandb_is_free(FREE, {})
    monkeypatch.setenv(name, "mine")
    assert not trackers._wandb_is_free(FREE, {})


@pytest.mark.parametrize(
    ("given", "free"),
    [
        ({"id": None, "resume": "allow", "project": "p"}, True),  # as Lightning's logger
        ({"id": "mine"}, False),
        ({"resume": "must"}, False),
        ({"resume": True}, False),
        ({"fork_from": "a?_step=1"}, False),
        ({"settings": {"run_id": "mine"}}, False),
        ({"settings": SimpleNamespace(run_id=None)}, True),
    ],
)
def test_a_scripts_arguments_choose(given: dict[str, Any], free: bool) -> None:  # noqa: FBT001  a case's value
    assert trackers._wandb_is_free(FREE, given) is free


def test_an_open_run_is_the_one_that_is_meant() -> None:
    assert not trackers._wandb_is_free(SimpleNamespace(run=object()), {})
    assert trackers._wandb_is_free(SimpleNamespace(run=object()), {"reinit": True})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"mlflow": 1}', "\xff"])
def test_a_damaged_record_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    record = Record(tmp_path)
    assert record.of("mlflow", "1") is None
    record.put("mlflow", "1", "a")
    assert Record(tmp_path).of("mlflow", "1") == "a"
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


def test_what_this_start_records_is_not_of_an_earlier_one(tmp_path: Path) -> None:
    record = Record(tmp_path / "history")
    record.put("events", "/a", value=True)
    record.put("mlflow", "1", "a")
    assert record.of("events", "/a") is None
    assert Record(tmp_path / "history").earlier == {"events": {"/a": True}, "mlflow": {"1": "a"}}


def test_without_a_folder_or_on_a_full_one_nothing_fails(tmp_path: Path) -> None:
    Record(None).put("mlflow", "1", "a")
    (tmp_path / "file").write_text("")
    Record(tmp_path / "file").put("mlflow", "1", "a")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_other_ranks_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [])
    trackers.watch(lambda: 0, {"RANK": "1", "KIT_RUN_ID": "run"})
    assert sys.meta_path == []
    trackers.watch(lambda: 0, {"RANK": "0", "KIT_RUN_ID": "run"})
    assert len(sys.meta_path) == 4 + len(trackers.LIGHTNING)
