"""The files of a bug report about a job, and the archive that has them. Pure but for compression.

Each text and each value goes through the one ``Redactor``, and nothing else is written.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from kitctl.base.quantity import format_bytes, pluralize
from kitctl.base.redaction import Redactor
from kitctl.output import documents
from kitctl.output.view import report
from kitctl.output.view.columns import columns
from kitctl.state import history
from kitctl.state.goodput.account import account
from kitctl.state.record import JobRecord

LOGS: Final = 32 << 20  # bytes of all nodes' logs
LOG: Final = 1 << 20  # bytes of one node's
HEAD: Final = 4  # the part of it that is kept from the beginning: one in so many
README: Final = """\
What kitctl knows of job {name} at {time}, for a bug report.

report.html is a page for people; the rest is what it was made from, and the ends of the logs. Values that look like
secrets, or have a secret's name in the job's settings, are replaced by [redacted]. Others are not recognized: look
through it before you publish it.
"""


class LogEnds:
    """The beginning and the end of a log that may be of any size, within a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._most_head, self._most_tail = limit // HEAD, limit - limit // HEAD
        self._head: list[str] = []
        self._tail: list[str] = []
        self._head_size = self._tail_size = self._dropped = 0

    def add(self, line: str) -> None:
        """Add a line."""
        size = len(line) + 1
        if not self._tail and self._head_size + size <= self._most_head:
            self._head.append(line)
            self._head_size += size
            return
        line = line if size <= self._most_tail else f"{line[: self._most_tail // 2]}…"
        self._tail.append(line)
        self._tail_size += len(line) + 1
        if self._tail_size > 2 * self._most_tail:  # at times, so that a line costs little
            self._shorten()

    def text(self) -> str:
        """What is kept, with the number of lines that are not."""
        self._shorten()
        dropped = [f"... {self._dropped:,} lines are left out ..."] if self._dropped else []
        return "".join(f"{line}\n" for line in (*self._head, *dropped, *self._tail))

    def _shorten(self) -> None:
        count = 0
        while self._tail_size > self._most_tail:
            self._tail_size -= len(self._tail[count]) + 1
            count += 1
        self._dropped += count
        del self._tail[:count]


def files(
    record: JobRecord, redactor: Redactor, logs: Mapping[int, LogEnds], extra: Mapping[str, Any]
) -> list[tuple[str, bytes]]:
    """The files by path, in the archive's order.

    Args:
        record: the job.
        redactor: takes secrets out.
        logs: by node.
        extra: further documents, by path.
    """
    found: list[tuple[str, bytes]] = []
    for path, value in _contents(record, logs, extra):
        text = redactor.text(value) if isinstance(value, str) else _text(path, redactor.tree(_plain(value)))
        found.append((path, text.encode(errors="backslashreplace")))
    found.append(("report.html", report.page(record, redactor).encode()))
    return sorted(found, key=lambda one: (one[0] != "README.md", "/" in one[0], one[0]))


def listing(found: Sequence[tuple[str, bytes]]) -> list[str]:
    """A line per file with its size."""
    rows = [[path, format_bytes(len(content))] for path, content in found]
    whole = sum(len(content) for _, content in found)
    return columns(("FILE", "SIZE"), [*rows, [pluralize(len(found), "file"), format_bytes(whole)]])


def archive(name: str, found: Sequence[tuple[str, bytes]], *, time: float) -> bytes:
    """A compressed tar archive with one folder, which only its user can read once it is unpacked."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=int(time)) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, content in found:
            member = tarfile.TarInfo(str(PurePosixPath(name) / path))
            member.size, member.mode, member.mtime = len(content), 0o600, int(time)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _contents(record: JobRecord, logs: Mapping[int, LogEnds], extra: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Paths with what they hold: a text, or nested data."""
    yield "README.md", README.format(name=record.state.name, time=report.clock(record.now))
    yield "settings.yaml", record.kept.settings
    yield "environment.json", {**record.kept.environment, "missing": dict(record.missing)}
    yield "status.json", documents.job(record.state, record.now)
    yield "why.json", documents.why(record.why, record.state)
    yield "version.json", documents.version()
    if record.audit:
        yield "audit.json", documents.audit(record.audit)
    if record.history:
        yield "events.json", documents.event_list(record.history, history.events(record.history))
        yield "goodput.json", documents.goodput(account(record.history))
        yield "history.jsonl", record.history.lines.decode(errors="replace")
    yield from extra.items()
    for node, log in sorted(logs.items()):
        yield f"logs/node-{node}.log", log.text()
    for path, value in record.kept.files.items():
        yield f"{record.state.target if record.state.target == 'local' else 'cluster'}/{path}", value


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _text(path: str, value: Any) -> str:
    if path.endswith(".yaml"):
        import yaml  # noqa: PLC0415 - for this command alone

        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return json.dumps(value, indent=2) + "\n"
