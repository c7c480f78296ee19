"""Jobs in an interpreter and in a notebook."""

from __future__ import annotations

import io
import os
import re
import sys
from functools import partial
from importlib import import_module

import pytest

import kitctl
from kitctl import Client, JobFailed, JobSpec, KitError, NotFound
from kitctl.base import errors
from kitctl.output.view.page import Findings, Page
from kitctl.state.checks import run_checks
from kitjob.report import Progress, Report, Termination
from tests.kitctl.localjobs import ended_job

EVIL = "<script>alert(1)</script> & \x1b[2J"


def test_an_error_s_text_has_the_fix() -> None:
    assert str(KitError("it is broken", fix="mend it")) == "it is broken\nfix: mend it"
    assert str(KitError("it is broken")) == "it is broken"


def test_every_error_can_be_imported_from_the_package() -> None:
    declared = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, KitError)}
    assert declared <= set(kitctl.__all__)
    for name in declared:
        assert getattr(kitctl, name) is getattr(errors, name)
    for name in kitctl.__all__:
        assert getattr(kitctl, name)
    assert set(dir(kitctl)) == set(kitctl.__all__)
    assert import_module("kitctl.api.job").Job is kitctl.Job


def test_a_job_is_short_and_asks_nothing() -> None:
    client = Client(target="local")
    assert repr(client.job("absent")) == "<Job default/absent>"
    assert repr(client) == "<Client of LocalTarget, namespace default>"


def test_a_job_in_a_notebook_is_a_table_with_escaped_texts() -> None:
    failure = Termination(outcome="fatal", reason=EVIL, fix="do <this>")
    report = Report(progress=Progress(step=72, total_steps=225, loss=0.0818))
    ended_job("bad", "Failed", failure=failure, report=report, lines=(f"[rank 0]: {EVIL}",))
    job = Client(target="local").job("bad")
    html = job._repr_html_()
    for told in ("default/bad", "Failed", "step 72/225, loss 0.0818", "do &lt;this&gt;", "&lt;script&gt;"):
        assert told in html
    assert "<script" not in html + job.logs()._repr_html_() + job.status()._repr_html_()
    assert "\x1b" not in html + repr(job.logs()) + repr(job.state())
    assert repr(job.state()).startswith("<bad: Failed, step 72/225, loss 0.0818, ")


def test_a_failed_job_in_a_notebook_has_the_cause_and_the_fix_of_all_pages() -> None:
    failure = Termination(outcome="fatal", reason="rank 0 failed", rank=0, error="MemoryError: ", fix="raise the limit")
    ended_job("bad", "Failed", failure=failure)
    html = Client(target="local").job("bad")._repr_html_()
    assert "<th>Why</th><td>rank 0: MemoryError:</td>" in html
    assert "fewer ranks: they share this machine" in html
    assert "<th>Then</th><td>kitctl restart bad starts it again; " in html


def test_checks_are_made_when_they_are_asked_for_and_shown_as_doctor_prints_them() -> None:
    made = []

    def one(name: str) -> str:
        made.append(name)
        return f"{name} is there"

    checks = Findings(run_checks([("python", partial(one, "python")), ("torch", partial(one, "torch"))]))
    assert made == []
    assert next(iter(checks)).what == "python is there"
    assert made == ["python"]
    assert repr(checks) == "python        ok      python is there\ntorch         ok      torch is there"
    assert [finding.check for finding in checks] == made == ["python", "torch"], "each is made once"
    assert checks._repr_html_().startswith("<pre>python ")


def test_a_misspelt_field_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match=r"^JobSpec has no gpuspernode; did you mean gpus_per_node\?$"):
        JobSpec(gpuspernode=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^JobSpec has no zzz$"):
        JobSpec(zzz=4)  # type: ignore[call-arg]


NOTEBOOK = """\
from kitctl import Client, JobFailed, JobSpec
job = Client(target="local").job("job")
%%
job.wait(progress=True)
%%
job
%%
job.status()
%%
job.check()
%%
Client(target="local").job("bad").wait()
"""


def test_a_notebook_shows_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    ended_job("job", report=Report(progress=Progress(step=72, total_steps=225, loss=0.0818)))
    failure = Termination(outcome="fatal", reason="rank 0 failed", rank=0, error="KeyError: 'x'", fix="mend it")
    ended_job("bad", "Failed", failure=failure)
    cells = [nbformat.v4.new_code_cell(text) for text in NOTEBOOK.split("%%\n")]
    with pytest.raises(nbclient.exceptions.CellExecutionError) as raised:
        nbclient.NotebookClient(book := nbformat.v4.new_notebook(cells=cells), timeout=300).execute()
    _, waited, job, status, checks, _ = [cell.outputs for cell in book.cells]
    assert (
        "".join(one.text for one in waited if one.output_type == "stream")
        == "\rjob: Succeeded, step 72/225, loss 0.0818\n"
    )
    assert job[0].data["text/html"].startswith("<table><tr><th>Job</th><td>default/job</td>")
    assert status[0].data["text/plain"].startswith("Job  ")
    assert checks[0].data["text/plain"].startswith("phase ")
    told = re.sub(r"\x1b\[[0-9;]*m", "", str(raised.value))
    assert "JobFailed: job 'bad' failed: rank 0: KeyError: 'x'" in told
    assert "fix: mend it\nthen: kitctl restart bad starts it again" in told


def test_a_job_that_there_is_not_is_shown_as_such() -> None:
    html = Client(target="local").job("absent")._repr_html_()
    assert html.startswith("<pre>&lt;Job default/absent&gt;: no job &#x27;absent&#x27;")


def test_status_and_logs_are_the_commands_texts() -> None:
    ended_job("job", lines=("[rank 0]: a", "[rank 0]: b", "[rank 1]: c"))
    job = Client(target="local").job("job")
    assert str(job.status()).startswith("Job  ")
    assert repr(job.logs()) == "[rank 0]: a\n[rank 0]: b\n[rank 1]: c"
    assert job.logs(tail=1) == "[rank 1]: c"
    assert job.logs(rank=0, include="a$") == "[rank 0]: a"
    assert isinstance(job.logs(), Page)


def test_logs_of_a_rank_that_there_is_not_raise() -> None:
    report = Report(formed=1.0, world_size=1, nodes={"0": import_module("kitjob.report").NodeAssignment()})
    ended_job("job", report=report)
    with pytest.raises(NotFound, match="has no rank 9\\nfix: it has only rank 0"):
        Client(target="local").job("job").logs(rank=9)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdout", "printed"), [(io.StringIO(), "job: Failed, boom\n"), (Terminal(), "\rjob: Failed, boom\n")]
)
def test_progress_is_printed_in_one_line_where_that_is_possible(
    stdout: io.StringIO, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_job("job", "Failed", failure=Termination(outcome="fatal", reason="boom", fix="mend it"))
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(JobFailed, match="fix: mend it"):
        Client(target="local").job("job").wait(progress=True)
    assert stdout.getvalue() == printed


def test_wait_without_progress_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ended_job("job")
    assert Client(target="local").job("job").wait().phase == "Succeeded"
    assert capsys.readouterr() == ("", "")
