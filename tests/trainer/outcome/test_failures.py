"""Whose fault a failure is, which one explains the others, and what it costs."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitjob.report import VALUES
from kittrain.outcome.causes import Kind
from kittrain.outcome.failures import (
    NO_SNAPSHOT,
    Budget,
    Failure,
    ScriptRound,
    is_hopeless,
    lacks_file,
    newest_snapshot,
    root_cause,
    script_round,
    waits_in_vain,
)
from tests.trainer.storage import failing

GLOO = "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:545] "


@pytest.mark.parametrize(
    ("exit_code", "error", "kind"),
    [(75, "exit code 75", "drained"), (-15, "killed by SIGTERM", "stopped"), (3, "exit code 3", "own")],
)
def test_the_kind_of_an_exit_code(exit_code: int, error: str, kind: Kind) -> None:
    assert Failure(rank=0, exit_code=exit_code, error=error, time=0).kind == kind


def failure(rank: int, error: str, *, exit_code: int = 1, time: int = 100) -> Failure:
    return Failure(rank=rank, exit_code=exit_code, error=error, time=time)


def test_the_root_cause_is_a_ranks_own_failure() -> None:
    followed = failure(0, GLOO + "Connection closed by peer", time=99)
    stopped = failure(1, "killed by SIGTERM", exit_code=-15, time=98)
    own = failure(3, "ValueError: x")
    assert root_cause([followed, stopped, own, failure(2, "KeyError: 'y'", time=101)]) is own


def test_of_failures_of_one_kind_the_first_is_the_root_cause() -> None:
    early, late = failure(5, "ValueError: x", time=100), failure(0, "ValueError: x", time=101)
    assert root_cause([late, early]) is early


@given(st.permutations([("own", 0), ("drained", 1), ("peer", 2), ("stopped", 3)]))
def test_the_order_of_failures_does_not_matter(order: list[tuple[str, int]]) -> None:
    texts = {"own": ("E: x", 1), "drained": ("", 75), "peer": ("DistError: x", 1), "stopped": ("", -15)}
    failures = [failure(rank, texts[kind][0], exit_code=texts[kind][1]) for kind, rank in order]
    assert root_cause(failures).kind == "own"


def test_own_failures_use_up_the_restarts() -> None:
    budget = Budget(max_restarts=2)
    assert [budget.charge("own") for _ in range(3)] == [True, True, False]


def test_without_restarts_the_first_failure_is_final() -> None:
    assert not Budget(max_restarts=0).charge("own")


def test_lost_peers_and_drains_use_no_restart_but_lost_peers_are_limited() -> None:
    budget = Budget(max_restarts=0, max_peer_failures=3)
    assert [budget.charge(kind) for kind in ("peer", "drained", "peer", "drained", "peer")] == [True] * 5
    assert not budget.charge("peer")


def test_unresponsive_storage_uses_no_restart_but_is_limited() -> None:
    budget = Budget(max_restarts=0, max_peer_failures=3)
    assert [budget.charge("storage") for _ in range(4)] == [True, True, True, False]
    assert (budget.own, budget.peer, budget.storage) == (0, 0, 4)


def test_no_restart_is_used_while_progress_is_unknown(tmp_path: Path) -> None:
    budget = Budget(max_restarts=0, snapshot_dir=tmp_path)
    with failing(tmp_path, errno.EIO):
        assert newest_snapshot(tmp_path) is None
        assert budget.charge("own")
        assert budget.charge("drained")
    assert (budget.own, budget.storage) == (0, 1)
    assert not budget.charge("own")


def test_a_budget_created_while_the_storage_is_unresponsive_starts_without_a_snapshot(tmp_path: Path) -> None:
    with failing(tmp_path, errno.EIO):
        budget = Budget(max_restarts=0, snapshot_dir=tmp_path)
    assert not budget.charge("own")


def test_a_newer_snapshot_resets_the_budget(tmp_path: Path) -> None:
    (tmp_path / "step-00000010-g0001").mkdir()
    budget = Budget(max_restarts=1, snapshot_dir=tmp_path)
    assert budget.charge("own")
    (tmp_path / "step-00000011-g0002").mkdir()
    assert budget.charge("own")
    assert not budget.charge("own")  # nothing new since


def test_snapshots_of_an_earlier_generation_do_not_hide_progress(tmp_path: Path) -> None:
    (tmp_path / "step-00000900-g0001").mkdir()
    budget = Budget(max_restarts=1, snapshot_dir=tmp_path)
    assert budget.charge("own")
    (tmp_path / "step-00000010-g0002").mkdir()
    assert budget.charge("own")


def test_only_published_snapshots_count(tmp_path: Path) -> None:
    assert newest_snapshot(None) == newest_snapshot(tmp_path / "absent") == newest_snapshot(tmp_path) == NO_SNAPSHOT
    for name in (
        "step-00000009-g0002",
        "step-00000010-g0001",
        ".tmp-step-00000099-g0003",
        "step-00000098-g0002.bad",
        "notes",
    ):
        (tmp_path / name).mkdir()
    assert newest_snapshot(tmp_path) == (2, 9)


def test_a_brief_error_is_one_short_line() -> None:
    error = "RuntimeError: [/build/gloo/tcp/pair.cc:545] Read error [127.0.0.1]:5: Connection reset by peer"
    for more in ("\nmore", ". This is typically caused by a remote worker crashing. Check its logs."):
        failure = Failure(rank=0, exit_code=1, error=error + more, time=0)
        assert failure.brief == "RuntimeError: Read error [127.0.0.1]:5: Connection reset by peer"
    assert len(Failure(rank=0, exit_code=1, error="x" * 500, time=0).brief) == 100


def test_a_hang_is_charged_once_it_repeats_at_the_same_step(tmp_path: Path) -> None:
    budget = Budget(max_restarts=1, snapshot_dir=tmp_path)
    assert budget.charge("hang", step=7), "it may have been slow"
    assert budget.charge("hang", step=9), "another step"
    assert budget.charge("hang", step=9)
    assert budget.repeated == 1
    assert budget.charge("own")
    assert not budget.charge("hang", step=9)


def test_a_new_snapshot_or_another_step_resets_repeated_hangs(tmp_path: Path) -> None:
    budget = Budget(max_restarts=0, snapshot_dir=tmp_path)
    assert budget.charge("hang", step=9)
    (tmp_path / "step-00000009-g0001").mkdir()
    assert budget.charge("hang", step=9)
    assert budget.charge("hang", step=11)
    assert not budget.charge("hang", step=11)


def test_hangs_at_different_steps_are_limited() -> None:
    budget = Budget(max_restarts=0, max_peer_failures=3)
    assert [budget.charge("hang", step=step) for step in range(4)] == [True, True, True, False]


def own_loop(steps: int, loaded: int, error: str = "ValueError: no") -> ScriptRound:
    return ScriptRound(steps=steps, loaded=loaded, error=error)


@pytest.mark.parametrize(
    ("before", "now", "further"),
    [
        (ScriptRound(), own_loop(500, 0), False),  # it begins from nothing, however far it comes
        (own_loop(500, 0), own_loop(800, 0), False),
        (own_loop(500, 0), own_loop(90, 5), True),  # it went on from a file
        (own_loop(90, 5), own_loop(700, 5), False),  # from the same as before: nothing was saved in between
        (own_loop(90, 5), own_loop(120, 6), True),
        (own_loop(90, 5), own_loop(90, 6), False),  # it repeats what it has saved, and fails at the same place
        (own_loop(90, 5), own_loop(90, 6, "KeyError: 3"), True),
        (own_loop(90, 5, ""), own_loop(90, 6, ""), True),  # killed from outside
        (own_loop(90, 6), own_loop(120, 5), False),  # an older file
    ],
)
def test_a_script_that_loads_a_newer_checkpoint_has_made_progress(
    before: ScriptRound, now: ScriptRound, *, further: bool
) -> None:
    assert now.is_further_than(before) == further


def test_a_newer_checkpoint_of_a_script_resets_the_budget() -> None:
    budget = Budget(max_restarts=2)
    assert all(budget.charge("own", script=own_loop(10 + number, number)) for number in range(20))
    assert budget.own == 1
    assert budget.charge("own", script=None), "no step was taken"
    assert not budget.charge("own", script=own_loop(40, 19))


def test_a_scripts_progress_is_a_guess_so_its_failures_are_limited() -> None:
    budget = Budget(max_restarts=1, max_script_failures=10)
    assert [budget.charge("own", script=own_loop(number, number)) for number in range(11)] == [*[True] * 10, False]


@pytest.mark.parametrize(
    ("exit_code", "error", "kept"),
    [
        (1, "ValueError: no", "ValueError: no"),
        (-9, "killed by SIGKILL", ""),
        (-9, "killed by SIGKILL: out of memory", "killed by SIGKILL: out of memory"),
        (-9, "hang: rank 1 has been in compute for 31 s", "hang"),
    ],
)
def test_the_record_of_a_scripts_round(exit_code: int, error: str, kept: str) -> None:
    cause = Failure(rank=1, exit_code=exit_code, error=error, time=0)
    assert script_round(cause, steps=3, loaded=5) == ScriptRound(steps=3, loaded=5, error=kept)
    assert script_round(cause, steps=0, loaded=5) is None


OF_OTHERS = "although all ranks of this job are there: it is told of others"


@pytest.mark.parametrize(
    ("error", "once", "twice"),
    [
        ("ModuleNotFoundError: No module named 'a'", True, True),
        ("ImportError: cannot import name 'a' from 'b' (/b.py)", True, True),
        ("NameError: name 'lod' is not defined. Did you mean: 'load'?", False, True),
        ("UnboundLocalError: cannot access local variable 'loss' where it is not associated with a value", False, True),
        ("AttributeError: module 'torch' has no attribute 'lod'", False, True),
        ("TypeError: train() got an unexpected keyword argument 'lr'", False, True),
        ("AttributeError: 'NoneType' object has no attribute 'x'", False, False),
        (f"hang: ranks 0-1 have been in init_process_group for 900 s, at a.py:2, {OF_OTHERS}", False, True),
        ("ValueError: no", False, False),
        ("killed by SIGKILL", False, False),
    ],
)
def test_a_repeated_failure_may_be_final(error: str, *, once: bool, twice: bool) -> None:
    first = Failure(rank=0, exit_code=1, error=error, traceback="at line 3", time=1)
    assert is_hopeless(first, None) == once
    assert is_hopeless(replace(first, rank=1, time=2, error=error.replace("900 s", "901 s")), first) == twice
    assert is_hopeless(replace(first, traceback="at line 4"), first) == once, "at another place"
    shown = [replace(first, traceback=f"{first.traceback}\n{VALUES}loss = {loss}\n") for loss in (0.5, 0.7)]
    assert is_hopeless(shown[0], shown[1]) == twice, "with other values"


def test_a_rank_that_times_out_where_it_did_before_waits_in_vain() -> None:
    error = "RuntimeError: [/gloo/unbound_buffer.cc:81] Timed out waiting 12000ms for recv operation to complete"
    first = Failure(rank=1, exit_code=1, error=error, traceback="at line 9", time=1)
    assert waits_in_vain(replace(first, error=error.replace("12000", "12001"), time=15), first)
    assert not waits_in_vain(first, None)
    assert not waits_in_vain(replace(first, traceback="at line 10"), first), "at another place"
    gone = replace(first, error="RuntimeError: Connection closed by peer [10.0.0.2]:4711")
    assert not waits_in_vain(gone, gone), "a lost node comes back"
    own = replace(first, error="TimeoutError: timed out")
    assert not waits_in_vain(own, own), "it is charged as a failure of its own"


def test_time_outs_at_one_place_use_up_the_restarts() -> None:
    budget = Budget(max_restarts=2)
    assert [budget.charge("peer", in_vain=again) for again in (False, True, True, True)] == [True, True, True, False]
    budget = Budget(max_restarts=0)
    assert [budget.charge("peer", in_vain=again) for again in (False, False, True)] == [True, True, False]
    assert (budget.peer, budget.waited) == (3, 1)


def test_a_file_that_was_not_sent_does_not_appear(tmp_path: Path) -> None:
    (tmp_path / "here.csv").touch()
    text = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    missing = [
        name
        for name in ("data/x.csv", "here.csv", "/mnt/x.csv", "../x.csv", f"{tmp_path}/y.csv")
        if lacks_file(failure(0, text.format(name)), tmp_path)
    ]
    assert missing == ["data/x.csv", f"{tmp_path}/y.csv"]
    assert not lacks_file(failure(0, "OSError: [Errno 5] Input/output error: 'x'"), tmp_path)


def test_a_long_path_hides_no_cause() -> None:
    path = "/home/somebody/.local/state/kitctl/snapshots/default/digits-kzls"
    error = f"SnapshotError: no snapshots can be written to {path}: [Errno 30] Read-only file system: '{path}/.fence'"
    told = Failure(rank=0, exit_code=1, error=error, time=0).brief
    assert told.startswith(
        "SnapshotError: no snapshots can be written to …/default/digits-kzls: [Errno 30] Read-only file "
    )
    short = "OSError: no /a/b/c/d"
    assert Failure(rank=0, exit_code=1, error=short, time=0).brief == short


def test_a_folder_that_nobody_can_write_to_is_not_tried_again() -> None:
    denied = "SnapshotError: no snapshots can be written to /kit: [Errno 30] Read-only file system: '/kit/.fence'"
    assert is_hopeless(Failure(rank=0, exit_code=1, error=denied, time=0), None)
    full = "SnapshotError: no snapshots can be written to /kit: [Errno 28] No space left on device: '/kit/.fence'"
    assert not is_hopeless(Failure(rank=0, exit_code=1, error=full, time=0), None)
