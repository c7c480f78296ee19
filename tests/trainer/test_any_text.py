"""Any text of a script gets through all that reports it, from the rank's error file to kitctl's page."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kitctl.base import printable
from kitctl.base.encoding import encode
from kitjob import typed
from kitjob.report import RankProgress, RecoveryTimings, Report, Termination
from kittrain.agent.processes import worker
from kittrain.agent.processes.worker_group import process_failures
from kittrain.agent.rendezvous import messages
from kittrain.agent.report.failure_log import FailureLog
from kittrain.agent.report.failure_message import failure_ending
from kittrain.agent.report.postmortem import Postmortem
from kittrain.agent.report.report_sinks import FileSink
from kittrain.agent.report.trainer_status import status_of
from kittrain.outcome import termination
from kittrain.outcome.failures import Budget, root_cause
from kittrain.outcome.judge import Verdict
from kittrain.system.console import log
from kittrain.system.texts import encodable, fit

TEXTS = {
    "lone surrogate": "no file 'data-\udcff'",
    "high surrogate": "\ud83d",
    "empty": "",
    "NUL": "a\0b",
    "terminal codes": "\x1b[2J\x1b]0;title\x07\r\x85\u2028\u202e",
    "a long line": "x" * (1 << 20),
    "long, slow to search": "[/" * (1 << 19),
    "long, of surrogates": "\udc80" * (1 << 20),
    "many lines": "line\n" * 10_000,
    "braces": "{0} {} %s",
    "another traceback": "Traceback (most recent call last):\n" * 2000 + "KeyError: '\udc80'",
}


class UnprintableError(Exception):
    """Its text cannot be computed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Files:
    """A rank's files."""

    def __init__(self, error: Path) -> None:
        self.error = error


class Worker:
    """A rank, as torch's agent has it."""

    global_rank = local_rank = 0
    id = 1


class Group:
    """A node's ranks."""

    workers = (Worker(),)


def fail(text: str) -> None:
    """Raise an error with this text, of a type and from a file with such a name."""
    name = encodable(text[:100]).replace("\0", "")  # Python takes no others
    kind = type(name or "Error", (Exception,), {})
    exec(compile("raise kind(text)", f"\udc80{name}.py", "exec"), {"kind": kind, "text": text})


def fail_without_text() -> None:
    """Raise an error whose text cannot be computed."""
    raise UnprintableError


def report(folder: Path, errors: str) -> termination.Ending:
    """The end of a round whose rank has left this error file; goes through all pieces of the trainer."""
    (failed,) = process_failures(Group(), [1], [Files(folder / "error.json")]).values()  # type: ignore[arg-type,list-item]
    cause = root_cause([Postmortem().failure(0, failed, errors.splitlines())])
    ending = failure_ending(Verdict(cause=cause, restart=True), Budget(max_restarts=1))
    log(0, ending.reason)
    log(0, cause.traceback)
    sent = messages.load(messages.FROM_NODES, messages.dump(messages.Fail(ending=ending)))
    assert isinstance(sent, messages.Fail)
    assert sent.ending == ending
    return ending


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    return tmp_path


@pytest.mark.parametrize(
    "script", [*(partial(fail, text) for text in TEXTS.values()), fail_without_text], ids=[*TEXTS, "no text"]
)
def test_an_error_reaches_the_log_the_report_and_the_page(
    recording: Path, script: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        script()
    except Exception as caught:  # noqa: BLE001  any
        with redirect_stderr(io.TextIOWrapper(io.BytesIO(), errors="backslashreplace")) as stderr:
            worker.record(caught)
            worker.print_error(caught)
            stderr.seek(0)
            printed = stderr.read()
    ending = report(recording, printed)
    assert ending.failure
    assert len(ending.failure.error) < 10_000
    assert len(ending.failure.traceback) < 40_000
    assert "[agent 0]: rank 0 failed (" in capfd.readouterr().out
    failures = FailureLog(0)
    failures.add(ending.failure, (0, 0))
    written = Report(failures=tuple(failures.known), last_recovery=RecoveryTimings(cause=ending.reason))
    FileSink(recording / "report.json").put(written)
    read = typed.load(Report, (recording / "report.json").read_bytes())
    assert read.failures[0].cause == ending.failure.brief
    message = termination.message(ending, node_index=0)
    assert len(message) <= termination.LIMIT
    end = typed.load(Termination, message)
    for text in (end.reason, end.error, end.traceback, *end.lines):
        printable.text(text).encode()
    assert encode(end)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_progress_of_a_script_cannot_break_the_report(tmp_path: Path, text: str) -> None:
    progress = {"step": 1, "loss": float("nan"), "metrics": {text: float("inf")}, "warning": text}
    progress["metrics"] |= {f"m{number}": 1.0 for number in range(10_000)}  # type: ignore[operator]
    kept = Report(progress=typed.decode(RankProgress, fit(json.loads(json.dumps(progress)))), updated="now")
    FileSink(tmp_path / "report.json").put(kept)
    content = (tmp_path / "report.json").read_bytes()
    assert len(content) < 1 << 16, "a ConfigMap holds a megabyte"
    msgspec.json.decode(content)
    msgspec.json.decode(json.dumps(status_of(kept)))


@pytest.mark.parametrize(
    "content", [b"", b'{"message": {"mess', b"[]", b'"text"', b'{"message": {}}', b'{"message": null}', b"\xff\xfe"]
)
def test_an_error_file_that_is_none_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "error.json").write_bytes(content)
    assert report(tmp_path, "no data\n").reason == "rank 0 failed (exit code 1: no data), restart 0 of 1"


def test_a_file_name_that_is_not_utf_8_is_recorded(recording: Path) -> None:
    try:
        Path(os.fsdecode(b"data-\xff")).stat()
    except OSError as error:
        worker.record(error)
    ending = report(recording, "")
    assert ending.reason.startswith("rank 0 failed (FileNotFoundError: ")
