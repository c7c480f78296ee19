"""``kitctl report`` and ``bundle``: what is in them, what can never be, and who can read them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl.cli.main import main
from kitctl.output import bundle
from kitctl.targets.local.folder import JobFolder
from kitjob.report import PastFailure, Progress, Report, Termination
from kitjob.timeline import Event, Line, Row
from tests.kitctl.localjobs import PAST, ended_job, running_job, write_history

EVIL: Final = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3) \"' onload='x' ]]> {{ 7*7 }}"
)
SECRETS: Final = {
    "environment": "planted-environment-value-1",
    "argument": "planted-argument-value-2",
    "log": "hf_plantedplantedplanted3",
    "url": "planted-url-password-4",
    "kubeconfig": "cGxhbnRlZC1rdWJlY29uZmlnLTU=",
    "cause": "ghp_planted6planted6planted6planted6",
    "shell": "planted-value-of-my-shell-7",
}


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    monkeypatch.setenv("MY_API_TOKEN", SECRETS["shell"])
    monkeypatch.chdir(tmp_path)


class Page(HTMLParser):
    """A page as a browser's parser sees it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {}
        self.shown: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag in {"script", "style"}:
            self.contents.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        if self._open in {"script", "style"}:
            self.contents[self._open][-1] += data
        else:
            self.shown.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.shown).split())


def report_of(name: str, capsys: pytest.CaptureFixture[str]) -> Page:
    assert main(["report", name]) == 0, capsys.readouterr().err
    return Page(Path(f"{name}-report.html").read_text("utf-8"))


def failed_job(name: str = "job", history: Sequence[Line] = (), **spec: Any) -> JobFolder:
    """A job that has failed after a restart; its texts try to get out of where they are shown."""
    cause = f"{EVIL} {SECRETS['cause']}"
    failure = Termination(
        outcome="fatal",
        reason=f"rank 0 failed ({cause})",
        rank=0,
        node=0,
        time=1767225604.0,
        error=cause,
        fix=f"mend {EVIL}",
        traceback=f'Traceback:\n  File "{EVIL}.py", line 3, in x\n{cause}\n',
    )
    progress = Progress(step=490, loss=0.04, metrics={EVIL: 1.5, "not finite": None})
    report = Report(
        formed=105.0,
        progress=progress,
        failures=(PastFailure(time=1767225602.0, node=0, rank=0, cause=cause),),
    )
    lines = (
        "[rank 0]: started",
        f"[rank 0]: {EVIL} \x1b[31mred \u202eforged",
        f"[rank 0]: token {SECRETS['log']} and {SECRETS['environment']} and {SECRETS['shell']}",
        f"[rank 0]: pip install --index-url https://me:{SECRETS['url']}@index.example/simple",
        f"[rank 0]: client-key-data: {SECRETS['kubeconfig']}",
        "[rank 0]: of the second start",
    )
    given = {"env": {"HF_TOKEN": SECRETS["environment"], "EVIL": EVIL}, "args": ("--password", SECRETS["argument"])}
    folder = ended_job(name, "Failed", failure=failure, report=report, lines=lines, **(given | spec))
    write_history(folder, history or [*PAST, Event(time=131.0, what="fault", node=0, cause=cause, round=1)])
    return folder


def test_the_page_shows_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    failed_job()
    page = report_of("job", capsys)
    for text in ("Where the time went", "73.5%", "Faults and recoveries", "first step", "HF_TOKEN: '[redacted]'"):
        assert text in page.text
    headline = page.text.index("rank 0: </script>")
    assert headline < page.text.index("Fix mend"), "the headline of kitctl why comes first"
    figures = [attrs["data-metric"] for tag, attrs in page.elements if tag == "figure"]
    assert figures == ["loss", "throughput", "step-time", "world-size"]
    known = json.loads(page.contents["script"][0])
    assert known["elapsed"] == 60.0
    assert len(known["series"]["loss"]["x"]) == 49
    assert known["series"]["loss"]["text"][-1] == "0.0408"


def test_no_text_gets_out_of_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    failed_job()
    page = report_of("job", capsys)
    assert page.text.count("alert(1)") > 5, "it is shown, as text"
    assert len(page.contents["script"]) == 2
    assert not any("alert(" in script for script in page.contents["script"][1:])
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert not {"img", "iframe", "object", "link", "base", "form", "a "} & set(tags)
    for tag, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on") or name in {"style", "src", "srcset"}], (tag, attrs)
        assert str(attrs.get("href") or "#").startswith("#"), (tag, attrs)
    whole = Path("job-report.html").read_text("utf-8")
    assert "\x1b" not in whole
    assert "\u202e" not in whole
    assert "49" not in page.text.split("{{ 7*7 }}")[0][-20:]
    # The policy allows the page's own script and style, and nothing else.
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert policy
    assert policy.startswith("default-src 'none';")
    for kind, content in (("script", page.contents["script"][1]), ("style", page.contents["style"][0])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!index\.example)", whole)
    assert "[rank 0]: started" in page.text
    assert "client-key-data" not in page.text, "it came after the first failure"


@pytest.mark.parametrize("kind", ["running", "without a history", "of a plain script", "before its first step"])
def test_a_report_of_any_job(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    match kind:
        case "running":
            write_history(
                running_job("job", report=Report(formed=105.0, world_size=1), lines=("[rank 0]: x",)), PAST[:-2]
            )
        case "without a history":
            ended_job("job")
        case "of a plain script":
            plain = [
                Row(
                    time=one.time, seconds=1.0, round=1, world=1, step=one.step, steps=one.steps, phases={"SCRIPT": 1.0}
                )
                for one in PAST
                if isinstance(one, Row)
            ]
            write_history(ended_job("job"), [*(one for one in PAST if not isinstance(one, Row)), *plain])
        case _:
            write_history(ended_job("job", "Cancelled"), PAST[:2])
    page = report_of("job", capsys)
    assert ("has no history" in page.text) is (kind == "without a history")
    assert ("Curves" in page.text) is (kind in {"running", "of a plain script"})


def test_no_planted_secret_is_in_a_report_or_a_bundle() -> None:
    failed_job()
    assert main(["report", "job"]) == 0
    assert main(["bundle", "job"]) == 0
    assert main(["plot", "job", "-o", "job.svg"]) == 0
    with tarfile.open("job-bundle.tar.gz") as tar:
        members = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        contents = {name: file.read() for name, file in members.items() if file}
    contents["report"], contents["plot"] = Path("job-report.html").read_bytes(), Path("job.svg").read_bytes()
    assert b"client-key-data" in contents["job-bundle/logs/node-0.log"], "logs are there, without secrets"
    found = {
        (name, kind) for name, content in contents.items() for kind, one in SECRETS.items() if one.encode() in content
    }
    assert not found


def test_a_bundle_is_listed_before_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    failed_job()
    assert main(["bundle", "job", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert not Path("job-bundle.tar.gz").exists()
    listed = [line.split()[0] for line in out.splitlines()[1:-1]]
    assert main(["bundle", "job", "-o", "for them.tgz"]) == 0
    with tarfile.open("for them.tgz") as tar:
        members = tar.getmembers()
    assert [one.name for one in members] == [f"for them/{name}" for name in listed]
    assert {one.mode for one in members} == {0o600}
    assert {"README.md", "status.json", "why.json", "history.jsonl", "doctor.json", "local/job.json"} <= set(listed)
    assert "local/secret" not in listed
    with tarfile.open("for them.tgz") as tar:
        file = tar.extractfile("for them/goodput.json")
        assert file
        found = json.load(file)
    capsys.readouterr()
    assert main(["goodput", "job", "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert found["nodeSeconds"] == printed["nodeSeconds"], "documents are those of the commands"
    assert found.keys() == printed.keys()


def test_what_is_written_is_the_users_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write_history(ended_job("job", lines=("started",)))
    before = os.umask(0)
    try:
        Path("victim").write_text("stays")
        Path(".job-report.html.part").symlink_to("victim")
        for words in (["report", "job"], ["bundle", "job"], ["plot", "job", "-o", "job.svg"]):
            assert main(words) == 0, capsys.readouterr().err
    finally:
        os.umask(before)
    for name in ("job-report.html", "job-bundle.tar.gz", "job.svg"):
        assert Path(name).stat().st_mode & 0o777 == 0o600, name
    assert Path("victim").read_text() == "stays"
    assert main(["report", "job", "-o", "missing/file"]) == 1
    assert "missing/file cannot be written" in capsys.readouterr().err


def test_a_huge_log_is_bounded() -> None:
    folder = ended_job("job", lines=("[rank 0]: first",))
    with folder.node(0).log(1).open("a", encoding="utf-8") as log:
        for number in range(60_000):
            log.write(f"2026-01-01T00:01:00.000000Z [rank 0]: line {number} {'x' * 40}\n")
        log.write(
            f"2026-01-01T00:01:01.000000Z [rank 0]: {'y' * 3_000_000}\n2026-01-01T00:01:02.000000Z [rank 0]: last\n"
        )
    assert main(["bundle", "job"]) == 0
    with tarfile.open("job-bundle.tar.gz") as tar:
        file = tar.extractfile("job-bundle/logs/node-0.log")
        assert file
        content = file.read()
    assert len(content) < 1.1 * (1 << 20)
    assert b"first" in content
    assert b"lines are left out" in content
    assert content.endswith(b"last\n")


def test_an_archive_is_the_same_for_the_same_files() -> None:
    found = [("a.json", b"{}"), ("ünï/b\udcff".encode("utf-8", "backslashreplace").decode(), b"x")]
    one, other = (bundle.archive("job", found, time=100.7) for _ in range(2))
    assert one == other
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        assert len(tar.getmembers()) == 2
