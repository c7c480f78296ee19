"""The output of each command with `-o json` conforms to docs/output.schema.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import kitctl
from kitctl.api.drill import Drill
from kitctl.cli.main import main
from kitctl.output.documents import API_VERSION
from kitctl.output.schema import output_schema
from kitctl.state.faults import FaultResult
from kitctl.state.stacks import NodeStacks
from kitctl.targets import Change
from kitctl.targets.local.local_target import LocalTarget
from kitjob import history, record, typed
from kitjob.report import NodeAssignment, PastFailure, Progress, RecoveryTimings, Report, Termination
from kitjob.stacks import RankStack, StackFrame, ThreadStack
from tests.kitctl.localjobs import ended_job, running_job, write_history

DOCS = Path(__file__).parents[3] / "docs"
TIMINGS = RecoveryTimings(cause="node 1 is lost", stop=0.1, form=0.2)
REPORT = Report(
    formed=1.0,
    world_size=1,
    nodes={"0": NodeAssignment(ranks=(0, 0))},
    progress=Progress(step=3, total_steps=9, loss=0.5, metrics={"accuracy": 0.9}),
    slow={"0": 1.5},
    last_recovery=TIMINGS,
    failures=(PastFailure(time=1.0, node=0, rank=0, cause="exit code 3"),),
)
FAILURE = Termination(outcome="fatal", reason="rank 0 failed", rank=0, node=0, error="KeyError", lines=("a",))
SNAPSHOT = history.SnapshotFacts(
    name="step-3",
    condition="whole",
    reason="",
    step=3,
    generation=1,
    size=10,
    epoch=1,
    run="r",
    world_size=1,
    created=1.0,
)
LEDGER = (history.LedgerEntry(generation=1, epoch=0, first_step=1, last_step=3, start=0, stop=12, world_size=1),)
TENSORS = (history.Tensor(name="weight", shape=(2, 3), dtype="float32", size=24),)
DETAILS = history.SnapshotDetails(
    **{name: getattr(SNAPSHOT, name) for name in SNAPSHOT.__fields__},
    job="job",
    position=12,
    samples=16,
    batch=4,
    seed=0,
    torch="2.9",
    parent="",
    digest="d",
    ledger=LEDGER,
    tensors=TENSORS,
)
EARLIER = history.EarlierData(samples=8, batch=4, seed=1, before=0, epochs=1, position=0, counted=8, steps=2)
PROOF = history.Proof(
    snapshot="step-3",
    epochs=0,
    position=12,
    samples=16,
    counted=12,
    steps=3,
    generations=1,
    broken="",
    entry=None,
    ledger=LEDGER,
    earlier=(EARLIER,),
)
ANSWERS: dict[str, Any] = {
    "list": [SNAPSHOT],
    "verify": [record.replace(SNAPSHOT, condition="verified")],
    "show": DETAILS,
    "audit": history.Audit(proofs=(PROOF,), unusable=()),
}
THREAD = ThreadStack(main=True, frames=(StackFrame(file="train.py", line=3, function="main"),))
STACKS = [NodeStacks(node=0, ranks=(RankStack(rank=0, pid=7, threads=(THREAD,)),)), NodeStacks(node=1, note="gone")]
RESULT = FaultResult(
    fault="kill-rank", target="rank 0 (node 0)", time=1.0, formed=1.5, timings=TIMINGS, phase="Running", recovered=True
)


def strict_schema() -> dict[str, Any]:
    """The schema, but unknown keys are errors."""
    schema = output_schema()
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    return schema


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")
    write_history(ended_job("job", "Failed", failure=FAILURE, report=REPORT, lines=("[rank 0]: epoch 1",)))

    def answers(_target: LocalTarget, _store: object, args: tuple[str, ...]) -> Iterator[bytes]:
        yield typed.dump(ANSWERS[args[0]])

    monkeypatch.setattr(LocalTarget, "run_snapshot_tool", answers)
    monkeypatch.setattr(LocalTarget, "submit", lambda _target, submission: running_job(submission.spec.name))
    changes = [Change(before=None, after={"kind": "Service", "metadata": {"name": "job"}}, refusal="quota")]
    monkeypatch.setattr(LocalTarget, "preview", lambda *_, **__: changes)
    monkeypatch.setattr(LocalTarget, "stacks", lambda *_: STACKS)
    monkeypatch.setattr(Drill, "require_running", lambda drill: drill.target.job(drill.namespace, drill.name))
    monkeypatch.setattr(Drill, "run", lambda _drill, _selector, **_: iter([RESULT]))


def printed(*words: str, capsys: pytest.CaptureFixture[str], exit_code: int = 0) -> dict[str, Any]:
    assert main([*words, "-o", "json"]) == exit_code
    return valid(capsys.readouterr().out)


def valid(text: str) -> dict[str, Any]:
    """Validate the object, and each of its parts, against the schema; returns it."""
    document: dict[str, Any] = json.loads(text)
    schema = strict_schema()
    jsonschema.Draft202012Validator(schema).validate(document)
    jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": f"#/$defs/{document['kind']}"}]}).validate(document)
    assert document["apiVersion"] == API_VERSION
    return document


@pytest.mark.parametrize(
    ("words", "kind", "exit_code"),
    [
        (("status", "job"), "Job", 0),
        (("list",), "JobList", 0),
        (("list", "--phase", "Running"), "JobList", 0),
        (("submit", "--name", "new", "--no-checks"), "Job", 0),
        (("diff", "--name", "new"), "Diff", 1),
        (("doctor", "job"), "DoctorReport", 1),
        (("drill", "job", "--fault", "kill-rank", "-y"), "DrillReport", 0),
        (("snapshots", "list", "job"), "SnapshotList", 0),
        (("snapshots", "verify", "job"), "SnapshotList", 0),
        (("snapshots", "show", "job"), "Snapshot", 0),
        (("audit", "job"), "AuditReport", 0),
        (("stacks", "job"), "StackReport", 0),
        (("logs", "job"), "LogLine", 0),
        (("events", "job"), "EventList", 0),
        (("goodput", "job"), "Goodput", 0),
        (("goodput", "-A"), "GoodputList", 0),
        (("plot", "job"), "SeriesList", 0),
        (("version",), "Version", 0),
    ],
    ids=str,
)
def test_every_command_prints_an_object_of_the_schema(
    words: tuple[str, ...], kind: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(*words, capsys=capsys, exit_code=exit_code)["kind"] == kind


def test_a_job_with_all_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    job = printed("status", "job", capsys=capsys)
    assert (job["name"], job["jobKind"], job["phase"], job["nodeRange"]) == ("job", "processes", "Failed", "1")
    assert job["progress"]["totalSteps"] == 9
    assert job["failure"]["lines"] == ["a"]
    assert [node["index"] for node in job["nodes"]] == [0]
    assert job["lastRecovery"]["form"] == 0.2
    assert job["failures"][0]["cause"] == "exit code 3"
    assert printed("list", capsys=capsys)["items"] == [job]


def test_a_running_node_has_its_ranks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    facts = LocalTarget.job

    def running(target: LocalTarget, namespace: str, name: str) -> Any:
        known = facts(target, namespace, name)
        alive = tuple(msgspec.structs.replace(node, alive=True, started=0.0) for node in known.nodes)
        report = record.replace(REPORT, nodes={"0": NodeAssignment(ranks=(0, 3))})
        return msgspec.structs.replace(known, result=None, nodes=alive, report=report)

    monkeypatch.setattr(LocalTarget, "job", running)
    job = printed("status", "job", capsys=capsys)
    assert (job["readyNodes"], job["nodes"][0]["ranks"], job["slow"]) == (1, [0, 1, 2, 3], {"0": 1.5})


def test_a_stream_prints_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "job", "--watch", "-o", "json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert valid(line)["phase"] == "Failed"


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_logs_print_one_object_a_line(follow: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("[agent 0]: node 0 of 1", "[rank 12]: 50 %\r100 %", "no prefix \x1b[2J", "")
    ended_job("talks", lines=lines)
    assert main(["logs", "talks", *follow, "-o", "json"]) == 0
    found = [valid(line) for line in capsys.readouterr().out.splitlines()]
    texts = ["node 0 of 1", "50 %\r100 %", "no prefix \x1b[2J", ""]
    assert [(line["node"], line["rank"], line["text"]) for line in found] == [
        (0, rank, text) for rank, text in zip((None, 12, None, None), texts, strict=True)
    ]
    assert all(line["time"] > 0 for line in found)


def test_version_names_the_folders_of_templates_and_chart(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed("version", capsys=capsys)
    assert Path(found["manifests"], "pod.yaml.j2").exists()
    assert Path(found["chart"], "Chart.yaml").exists()
    assert found["version"] == kitctl.__version__


def test_details_of_a_snapshot_are_null_in_lists(capsys: pytest.CaptureFixture[str]) -> None:
    (listed,) = printed("snapshots", "list", "job", capsys=capsys)["items"]
    shown = printed("snapshots", "show", "job", capsys=capsys)
    assert listed["details"] is None
    assert shown["details"]["tensors"] == [{"name": "weight", "shape": [2, 3], "dtype": "float32", "size": 24}]
    assert {**shown, "details": None} == listed


def test_an_audit_shows_whether_all_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("audit", "job", capsys=capsys)["proved"]
    ANSWERS["audit"], whole = record.replace(ANSWERS["audit"], unusable=(SNAPSHOT,)), ANSWERS["audit"]
    try:
        assert not printed("audit", "job", capsys=capsys, exit_code=1)["proved"]
    finally:
        ANSWERS["audit"] = whole


def test_all_keys_are_camel_case_and_described() -> None:
    for name, definition in output_schema()["$defs"].items():
        assert definition["description"], name
        assert definition["required"] == [*definition["properties"]], name
        for key, field in definition["properties"].items():
            assert re.fullmatch(r"[a-z][A-Za-z0-9]*", key), f"{name}.{key}"
            assert field["description"], f"{name}.{key}"


def test_the_documented_schema_is_the_one_of_the_code() -> None:
    assert json.loads((DOCS / "output.schema.json").read_text("utf-8")) == output_schema()
