"""Extracting what explains a failure from a rank's output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kittrain.outcome.rank_output import (
    CHANGED_NOTHING,
    LINES,
    LOST_WORKER,
    NO_PROCESSES,
    OTHER_GROUP,
    SAME_ORDER,
    WIDTH,
    aborted,
    child_error,
    clean,
    excerpt,
    handled_error,
    innermost_error,
    last_error,
    last_line,
    last_words,
    lost_worker,
    not_finite_loss,
    other_group,
    repeated_error,
    starts_nothing,
    thread_error,
    trains_nothing,
    without_traceback,
)


def test_terminal_control_codes_are_removed_and_a_redrawn_line_is_its_last_state() -> None:
    assert clean("10 %|=>   |\r20 %|==>  |") == "20 %|==>  |"
    assert clean("\x1b[1;31mno\x1b[0m \x1b]0;title\x07data\tx\x07") == "no data    x\N{REPLACEMENT CHARACTER}"
    assert clean("windows\r\n") == "windows"


@given(st.lists(st.text(max_size=300), max_size=40))
def test_an_excerpt_is_always_short(lines: list[str]) -> None:
    found = excerpt(lines)
    assert len(found) <= LINES
    assert all(len(line) <= WIDTH and line.isprintable() for line in found if line.isascii())


def test_an_excerpt_is_the_last_lines_and_the_first_line_of_usage() -> None:
    assert excerpt(["old", "", *map(str, range(LINES))]) == tuple(map(str, range(LINES)))
    usage = ["usage: train.py [-h]", *("  [--a]" for _ in range(30)), "train.py: error: no such argument"]
    found = excerpt(usage)
    assert (found[0], found[-1], len(found)) == (usage[0], usage[-1], LINES)


def test_an_excerpt_of_a_fatal_error_has_its_thread_and_the_lines_before() -> None:
    others = ["Thread 0x01 (most recent call first):", *(f'  File "x.py", line {at} in wait' for at in range(20))]
    own = ["Current thread 0x02 (most recent call first):", '  File "train.py", line 4 in step', "Extension modules: a"]
    printed = [*map(str, range(9)), "Fatal Python error: Aborted", "", *others, "", *own, *others]
    assert excerpt(printed) == ("6", "7", "8", "Fatal Python error: Aborted", *own[:2])


def test_the_last_line_is_not_a_librarys_message_at_exit() -> None:
    lines = ["no data", "[rank0]:[W1122 10:11:12.13 ProcessGroup.cpp:1] Warning: not destroyed", "  ", ""]
    assert last_line(lines) == "no data"
    assert last_line([]) == ""
    caught = [
        "Error executing job with overrides: []",
        "Traceback (most recent call last):",
        "RuntimeError: no such model",
    ]
    advice = "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."
    assert last_line([*caught, "", advice]) == "RuntimeError: no such model"
    refused = ["Could not override 'foo'.", "To append to your config use +foo=1", "Key 'foo' is not in struct"]
    where = ["    full_key: foo", "    object_type=dict", "    reference_type=None"]
    assert last_line([*refused, *where, "", advice]) == "Key 'foo' is not in struct"


def test_an_error_without_an_inner_one_is_unchanged() -> None:
    for error in ("ValueError: x\ny", "ValueError", "", "Traceback (most recent call last):"):
        assert innermost_error(error, "Traceback") == error


def test_the_innermost_of_several_tracebacks() -> None:
    inner = "Traceback (most recent call last):\n  File 'a', line 1, in b\nKeyError: 'x'\n"
    outer = f"Caught KeyError in replica 1 on device 1.\nOriginal Traceback (most recent call last):\n  c\nE: {inner}"
    assert innermost_error(f"KeyError: {outer}", "") == "KeyError: 'x' (in replica 1 on device 1)"


def test_what_was_said_before_the_last_traceback_is_kept_without_its_chain() -> None:
    header, frame = "Traceback (most recent call last):", '  File "a.py", line 1'
    before = ["a", header, frame, "KeyError: handled", "b"]
    for link in (
        "The above exception was the direct cause of the following exception:",
        "During handling of the above",
    ):
        chain = [
            header,
            frame,
            "A: 1",
            "",
            f"{link} exception, another" * ("During" in link) or link,
            "",
            header,
            frame,
            "B: 2",
        ]
        assert without_traceback([*before, *chain]) == before
    assert without_traceback(["a", "b"]) == ["a", "b"]


def test_what_a_rank_complains_of_is_the_last_line_that_tells_of_a_failure() -> None:
    assert last_error(["a", "fetch failed: \x1b[31mConnection refused\x1b[0m", "sleeping for 2 s"]) == (
        "fetch failed: Connection refused"
    )
    assert last_error(["RuntimeError: old", *["step"] * 9]) == ""
    assert last_error(["epoch 1 loss 0.5", "saved"]) == ""
    assert last_error(["GET h: Connection refused", "Retrying in 4 s [3/5]"]) == "GET h: Connection refused"
    assert last_error(["Retrying in 4 s [3/5]", "waiting for h"]) == "waiting for h"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["HEAD x failed; retrying in 1 s", "HEAD x failed; retrying in 30.5 s"], "HEAD x failed; retrying in 30.5 s"),
        (["HEAD x failed; retrying in 1 s", "the vocabulary is built"], ""),
        (["HEAD x failed; retrying in 1 s"], ""),
        (["step 1", "step 2"], ""),
        ([], ""),
    ],
)
def test_what_a_rank_complains_of_again_and_again_is_one_line_but_for_numbers(lines: list[str], told: str) -> None:
    assert repeated_error(lines) == told


def test_an_error_that_a_rank_has_printed_and_handled_is_the_last_one_of_its_tracebacks() -> None:
    header, frames = "Traceback (most recent call last):", ['  File "a.py", line 1', "    load()"]
    first = [header, *frames, "OSError: [Errno 111] Connection refused"]
    assert handled_error(["step 1", *first, "step 2", header, *frames, "KeyError: 'ids'", "done"]) == "KeyError: 'ids'"
    numbered = [f"[rank0]: {line}" for line in first]
    assert handled_error([*numbered, "[rank0]: bye"]) == "OSError: [Errno 111] Connection refused"
    assert handled_error([header, *frames, "AssertionError"]) == "AssertionError"
    assert handled_error(["step 1", "error: 0.3", "val error 0.2"]) == "", "a metric"
    assert handled_error([header, *frames]) == "", "cut short"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["step 1 loss 0.2", "step 2 loss nan", "step 3 loss nan", "saved", "step 4 loss nan"], "step 4 loss nan"),
        (["{'loss': nan}", "{'train_loss': -inf}", "Loss=NaN"], "Loss=NaN"),
        (["loss nan", "loss nan", "loss 0.3"], ""),
        (["loss nan", "loss nan"], ""),  # a mean of nothing, before the first step
        (["val_loss nan", "val_loss nan", "val loss: nan"], ""),
        (["loss 1", "weightloss nan", "glossary nan", "loss function: nanmean"], ""),
    ],
)
def test_a_loss_that_is_not_finite_is_known_by_what_a_rank_prints_again_and_again(lines: list[str], told: str) -> None:
    assert not_finite_loss(lines) == told


def test_a_thread_that_an_error_has_ended_is_known_by_what_python_printed_of_it() -> None:
    said = ["Exception in thread Thread-1 (produce):", "Traceback (most recent call last):", '  File "a.py", line 1']
    told = "Exception in thread Thread-1 (produce): KeyError: 'ids'"
    assert thread_error(["step 1", *said, "\x1b[31mKeyError: 'ids'\x1b[0m", "step 2"]) == told
    assert thread_error(["step 1", "KeyError: 'ids'"]) == ""


@pytest.mark.parametrize("error", ["Empty: ", "queue.Empty", "Full: ", "BrokenBarrierError: ", "TimeoutError: "])
def test_what_waits_for_a_thread_is_explained_by_how_that_has_ended(error: str) -> None:
    said = [
        "Exception in thread Thread-1 (read):",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in read',
        "    x()",
        "KeyError: 'ids'",
    ]
    assert child_error(error, ["step 1", *said, "step 2"]) == "KeyError: 'ids' (in thread Thread-1 (read))"
    assert child_error(error, ["step 1", *said[1:], "handled"]) == ""
    assert child_error(f"{error}of water", ["step 1", *said]) == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("  what():  [enforce fail at /g/pair.cc:4] op.preamble.length <= op.nbytes. 8 vs 4. ",
         "op.preamble.length <= op.nbytes. 8 vs 4."),
        ("  what():  std::bad_alloc", "std::bad_alloc"),
        ("double free or corruption (!prev)", "double free or corruption (!prev)"),
        ("free(): invalid pointer", "free(): invalid pointer"),
        ("*** stack smashing detected ***: terminated", "*** stack smashing detected ***: terminated"),
        ("python: a.c:3: main: Assertion `n > 0' failed.", "python: a.c:3: main: Assertion `n > 0' failed."),
        ("free: 3 GiB", ""),
        ("what: nothing", ""),
    ],
)  # fmt: skip
def test_why_native_code_has_aborted_is_what_it_has_printed(line: str, why: str) -> None:
    assert aborted(["step 1", line, "Fatal Python error: Aborted", "Thread 0x1 (most recent call first):"]) == why


def test_a_group_that_is_not_the_jobs_is_known_by_the_note_about_it() -> None:
    why = "world_size 4 is not this process's WORLD_SIZE, which is 2"
    assert other_group(["step 1", f"note: {OTHER_GROUP}{why}", "waiting"]) == why
    assert other_group(["step 1", "waiting"]) == ""


BOOTSTRAP = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 140, in _check_not_importing_main
    raise RuntimeError(...)
RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.

        This probably means that you are not using fork to start your
        child processes
step 3"""


def test_the_own_error_of_a_process_of_the_script_is_found_with_its_words() -> None:
    lost = "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"
    found = child_error(lost, BOOTSTRAP.splitlines())
    assert found.startswith("RuntimeError: An attempt has been made to start a new process before the current process")
    assert "has finished its bootstrapping phase" in found
    cut = [f"[rank1]: {line}" for line in BOOTSTRAP.splitlines()[2:]]
    assert child_error(lost, cut) == found, "lines above were too many to be kept"
    assert child_error("ValueError: no", BOOTSTRAP.splitlines()) == ""
    assert child_error(lost, ["step 3"]) == ""


def test_a_pool_that_waits_for_a_killed_worker_says_so() -> None:
    assert lost_worker(["a", f"warning: {LOST_WORKER} (SIGKILL)", "b"]) == f"{LOST_WORKER} (SIGKILL)"
    assert lost_worker(["a"]) == ""


@pytest.mark.parametrize(
    "line",
    [
        "ERROR:root:'ids'",
        "2026-11-27 21:04:11,120 - ERROR - no such shard",
        "[2026-11-27 21:04:11][CRITICAL] stopped",
        "2026-11-27 21:04:11 | ERROR | train:main:7 - no data",
        "Error: CUDA is not available",
        "KeyError: 'ids'",
        "KeyError('ids')",
        "An error occurred: 'ids'",
        "Training failed: 'ids'",
        "Failed to load the data: 'ids'",
        "train.py: error: no such split",
    ],
)
def test_an_error_at_the_end_is_told_from_its_words(line: str) -> None:
    assert last_words(["epoch 1", line]) == line


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["training ended: RuntimeError", "bye"], "training ended: RuntimeError"),
        (["stopped by ValueError", "saved log", "took 3 s", "bye"], "stopped by ValueError"),
        (["INFO aborting after torch.cuda.OutOfMemoryError", "bye"], "INFO aborting after torch.cuda.OutOfMemoryError"),
        (["gave up: KeyError: 'x'", "epoch 1", "epoch 2", "epoch 3", "epoch 4"], ""),  # long before the end
        (["interrupted: KeyboardInterrupt", "bye"], ""),
        (["skipped 2 files: UnicodeDecodeError", "training ended", "bye"], ""),
        (["stopped early: mean absolute error 0.3", "bye"], ""),
    ],
)
def test_an_error_with_which_a_handler_says_that_training_ends(lines: list[str], told: str) -> None:
    assert last_words(["epoch 1", *lines]) == told


@pytest.mark.parametrize(
    "line",
    [
        "error: 0.021",
        "error = .021",
        "error rate 0.1 %",
        "Error bars are in plot.png",
        "error of the average 0.29",
        "test_error: 0.3",
        "0 errors, 2 warnings",
        "shard 18: error rate 0.1 %, val_loss nan",
        "finished: 3 samples failed",
        "mean absolute error 0.3",
        "errors 0",
        "trained, no exception",
    ],
)
def test_words_of_errors_in_a_last_line_are_none(line: str) -> None:
    assert last_words([line]) == ""


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([f"note: {CHANGED_NOTHING}no rate"], f"{CHANGED_NOTHING}no rate"),
        ([f"step {step} loss 0.6931" for step in range(12)], "the loss was 0.6931 in the last 12 lines that show it"),
        ([f"{{'loss': 2.3026, 'step': {step}}}" for step in range(10)], "the loss was 2.3026 in the last 10 lines"),
        ([f"step {step} loss 0.6931" for step in range(9)], ""),
        ([f"step {step} loss 0.0" for step in range(12)], ""),
        ([f"step {step} loss nan" for step in range(12)], ""),
        ([*[f"step {step} loss 0.6931" for step in range(12)], "step 12 loss 0.6930"], ""),
        ([f"epoch {epoch} best loss 0.1" for epoch in range(12)], ""),
        ([f"epoch {epoch} val_loss 0.1 loss_scale 1024" for epoch in range(12)], ""),
    ],
)
def test_training_that_changes_nothing_is_told(lines: list[str], told: str) -> None:
    assert trains_nothing(lines).startswith(told) if told else trains_nothing(lines) == ""


def test_processes_that_were_not_started_and_orders_that_stay_the_same_are_told() -> None:
    assert starts_nothing([f"note: {NO_PROCESSES}"]) == NO_PROCESSES
    assert starts_nothing(["note: the steps of programs that it has started are not seen: 2 of a.py"]).endswith("a.py")
    assert starts_nothing(["training"]) == ""
    order = f"{SAME_ORDER} in all 3 passes"
    assert trains_nothing([f"note: {order}"]) == order
    assert trains_nothing([f"note: {order}", f"note: {CHANGED_NOTHING}no rate"]) == f"{CHANGED_NOTHING}no rate"


def test_a_note_of_the_hooks_is_no_last_line() -> None:
    assert last_line(["no config: c.yaml", f"note: {CHANGED_NOTHING}no rate"]) == "no config: c.yaml"
