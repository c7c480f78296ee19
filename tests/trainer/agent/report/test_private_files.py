"""What is said of checkpoints in nodes' own folders, and how often."""

from __future__ import annotations

import time

import pytest

from kitjob.run import RunFacts
from kittrain.agent.rendezvous.resumes import Resume
from kittrain.agent.report.private_files import OTHERS_SAVE, PrivateFiles
from kittrain.job.env import NodeEnv
from kittrain.system.heartbeat_files import LoadedFile
from tests.trainer.settings import job


@pytest.mark.parametrize(
    ("nodes", "pod", "fate"),
    [
        (2, False, "ranks of other nodes do not find it there"),
        (1, True, "it is gone with its pod"),
        (2, True, "ranks of other nodes do not find it there, and it is gone with its pod"),
    ],
)
def test_the_first_checkpoint_is_told_once_with_its_fate(nodes: int, *, pod: bool, fate: str) -> None:
    files = PrivateFiles(NodeEnv(job=job(nodes=nodes), run=RunFacts(restart_in_place=pod)))
    assert [*files.observe(None, ())] == []
    (told,) = [*files.observe((3, "out/ck/best.pt"), ()), *files.end()]
    assert told == f"rank 3 has saved out/ck/best.pt to its node's own folder: {fate}; use --outputs out/ck"
    files.begin()
    assert [*files.observe((3, "out/other.pt"), ())] == []
    assert files.notice == told


def test_a_file_in_the_working_folder_itself_needs_a_folder() -> None:
    files = PrivateFiles(NodeEnv(job=job(nodes=2)))
    (told,) = [*files.observe((0, "best.pt"), ()), *files.end()]
    assert told.endswith("; save it in a folder, and name that with --outputs")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("out/checkpoint-500/model.safetensors", "out"),
        ("out/epoch_3/optimizer/a.pt", "out"),
        ("runs/step=12/rank0/a.pt", "runs"),
        ("out/2024/a.pt", "out"),
        ("out/resnet50/a.pt", "out/resnet50"),
        ("checkpoint-500/a.pt", "checkpoint-500"),  # there is none above that could be named
    ],
)
def test_the_folder_of_all_checkpoints_is_named_and_not_that_of_one(name: str, folder: str) -> None:
    files = PrivateFiles(NodeEnv(job=job(nodes=2)))
    (told,) = [*files.observe((0, name), ()), *files.end()]
    assert told.endswith(f"; use --outputs {folder}")


@pytest.mark.parametrize(
    ("pod", "fates"),
    [(False, []), (True, ["rank 0 has saved a/b.pt to its node's own folder: it is gone with its pod"])],
)
def test_where_each_node_saves_one_the_others_need_none(
    monkeypatch: pytest.MonkeyPatch, *, pod: bool, fates: list[str]
) -> None:
    files = PrivateFiles(NodeEnv(job=job(nodes=2), run=RunFacts(restart_in_place=pod)))
    told = [*files.observe((0, "a/b.pt"), ()), *files.observe((0, "a/b.pt"), (), all_saved=True), *files.end()]
    assert [one.partition(";")[0] for one in told] == fates
    assert [files.notice.partition(";")[0]] == (fates or [""])

    late = PrivateFiles(NodeEnv(job=job(nodes=2), run=RunFacts(restart_in_place=pod)))
    assert [*late.observe((0, "a/b.pt"), ())] == []
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + OTHERS_SAVE + 0.1)
    (alone,) = late.observe((0, "a/b.pt"), ())
    assert "ranks of other nodes do not find it there" in alone
    assert [*late.observe((0, "a/b.pt"), (), all_saved=True), *late.end()] == []
    assert [late.notice.partition(";")[0]] == (fates or [""]), "it has become known that it does no harm"


def test_a_difference_is_told_once_a_round() -> None:
    files = PrivateFiles(NodeEnv(node_index=1))
    resumes = [Resume(node=0, name="best.pt", digest=1, private=True), Resume(node=1)]
    (told,) = files.observe(None, resumes)
    assert [*files.observe(None, resumes)] == []
    assert files.difference == told
    files.begin()
    assert [*files.observe(None, ())] == []
    assert [*files.observe(None, resumes)] == [told]


def test_what_ranks_went_on_from_is_known_once_they_train() -> None:
    files = PrivateFiles(NodeEnv(node_index=1))
    files.resumed(None)
    assert files.resume == Resume(node=1)
    files.resumed(LoadedFile(name="best.pt", digest=3, private=True, age=2.0))
    assert files.resume == Resume(node=1, name="best.pt", digest=3, private=True, age=2.0)
