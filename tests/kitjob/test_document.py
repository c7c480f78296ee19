"""The document for agents and ranks: what is in it, what an agent reads from it, and errors that name the field."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kitjob import document, variables
from kitjob.document import LIMIT, VERSION, DocumentError
from kitjob.job_keys import JobKeys
from kitjob.names import EXIT_CODES
from kitjob.record import Record, hints, is_record, sent_fields
from kitjob.run import Code, RunFacts
from kitjob.sections import Nccl, Snapshots
from kittrain.job.env import node_env, rank_env, variable_of
from kittrain.job.variables import EnvError

ROOT = Path(__file__).resolve().parents[2]
KUBEFLOWS = {"done": 0, "drained": 143, "retryable": 144, "fatal": 78}


def told(job: dict[str, Any] | None = None, run: dict[str, Any] | None = None) -> dict[str, str]:
    return {"KIT_SPEC": json.dumps({"version": VERSION, "job": job or {}, "run": run or {}})}


def test_only_settings_that_ranks_read_and_that_are_no_defaults_are_in_it() -> None:
    job = JobKeys(
        name="job",
        image="registry.example/secret/image",
        env={"TOKEN": "secret"},
        secrets={"HF_TOKEN": "secret/token"},
        snapshots=Snapshots(every_steps=7, keep=3, claim="secret"),
    )
    assert document.selection(job) == {"name": "job", "snapshots": {"everySteps": 7}}
    text = document.write(job, RunFacts(code=Code(digest="d", store="/code", workdir="/workspace")))
    assert json.loads(text)["run"] == {"code": {"digest": "d", "store": "/code", "workdir": "/workspace"}}
    assert "secret" not in text


def test_what_was_written_is_read() -> None:
    job, run = (
        JobKeys(nccl=Nccl(interface="eth0"), resume="state"),
        RunFacts(exit_codes=KUBEFLOWS, restart_in_place=True),
    )
    settings, about = document.read(document.write(job, run))
    assert (document.build(JobKeys, settings), document.build(RunFacts, about)) == (job, run)


def test_the_document_s_types_become_ours() -> None:
    node = node_env(told({"policy": {"hangTimeout": "90s"}, "snapshots": {"memoryEverySteps": 5}}, {"logDir": "/logs"}))
    assert (node.run.log_dir, node.job.policy.hang_seconds, node.memory_root) == ("/logs", 90.0, Path("/dev/shm"))
    off, auto = (node_env(told({"policy": {"hangTimeout": text}})) for text in ("off", "auto"))
    assert (off.job.policy.hang_seconds, auto.job.policy.hang_seconds) == (math.inf, None)
    assert node_env({}).run.exit_codes == EXIT_CODES


def test_times_of_older_versions_are_of_seconds() -> None:
    older = {"policy": {"hangTimeout": "90", "gracePeriod": "0"}, "rendezvous": {"joinTimeout": "600"}}
    node = node_env(told(older) | {"KIT_RENDEZVOUS_LAST_CALL": "7"})
    assert (node.job.policy.hang_seconds, node.grace_period) == (90.0, 0.0)
    assert node.rendezvous_conf == {"join_timeout": "600", "last_call_timeout": "7"}


def test_the_document_wins_over_torchruns_variables_and_a_variable_of_its_own_over_both() -> None:
    environ = {"PET_NNODES": "3", "PET_MAX_RESTARTS": "1"}
    given = told({"nodes": "2:4", "snapshots": {"keep": 4}, "backend": "nccl"})
    node = node_env(environ | given)
    assert (node.job.min_nodes, node.job.max_nodes, node.job.policy.max_restarts) == (2, 4, 3)
    rank = rank_env(given | {"KIT_SNAPSHOTS_KEEP": "5", "KIT_FROM_SCRATCH": "1", "KIT_BACKEND": "gloo"})
    assert (rank.job.snapshots.keep, rank.job.from_scratch, rank.backend) == (5, True, "gloo")


@pytest.mark.parametrize("knob", ["KIT_AUTO_BACKEND", "KIT_WARM_WORKERS", "KIT_MEMORY_ROOT"])
def test_variables_of_the_image_override_the_document(knob: str) -> None:
    values = {"KIT_AUTO_BACKEND": "gloo", "KIT_WARM_WORKERS": "0", "KIT_MEMORY_ROOT": "/ram"}
    node = node_env(told({"snapshots": {"memoryEverySteps": 1}}) | {knob: values[knob]})
    expected = {"KIT_AUTO_BACKEND": "auto", "KIT_WARM_WORKERS": "True", "KIT_MEMORY_ROOT": "/dev/shm"} | {
        knob: values[knob].replace("0", "False")
    }
    assert [str(value) for value in (node.backend, node.warm_workers, node.memory_root)] == [*expected.values()]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("job.snapshots.everySteps", "7", "not a whole number: '7'"),
        ("job.snapshots.everySteps", 1.5, "not a whole number: 1.5"),
        ("job.snapshots.everySteps", True, "not a whole number: True"),
        ("job.snapshots.everySteps", 0, "not within its bounds: 0"),
        ("job.snapshots.every", "x", r"not str \| NoneType: 'x'"),
        ("job.snapshots", 5, "not Snapshots: 5"),
        ("job.backend", "mpi", r"not one of \('auto', 'nccl', 'gloo'\): 'mpi'"),
        ("job.backend", [], "not one of"),
        ("job.resume", "exact", "not bool"),
        ("job.policy.hangTimeout", "5 minutes", "not like auto or 10m: '5 minutes'"),
        ("run.logDir", 5, "not text: 5"),
        ("run.restartInPlace", 1, "not bool: 1"),
        ("run.exitCodes", {"done": 0}, ""),
        ("run.code", {"digest": "d"}, "Code: store, workdir: missing"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(path: str, value: object, message: str) -> None:
    part, *keys = path.split(".")
    given = value
    for key in reversed(keys):
        given = {key: given}
    named = "run: exitCodes: not exactly done, drained, retryable, fatal: done" if "exit" in path else path
    with pytest.raises(EnvError, match=f"^KIT_SPEC: {named}:? ?{message}"):
        node_env({"KIT_SPEC": json.dumps({"version": VERSION, "job": {}, "run": {}, part: given})})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "KIT_SPEC: not JSON"),
        ("[1]", "KIT_SPEC: not an object"),
        ("{}", "KIT_SPEC: version: not a whole number"),
        ('{"version": 2, "job": []}', "KIT_SPEC: job and run: not both objects"),
    ],
)
def test_an_invalid_document_is_rejected(text: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        node_env({"KIT_SPEC": text})
    with pytest.raises(EnvError, match=message):
        rank_env({"KIT_SPEC": text})


def test_a_newer_format_is_refused_with_what_to_do() -> None:
    older = "the image's kittrain is older than kitctl 9.0.0; rebuild the image, or name one of kitctl's version"
    text = json.dumps({"version": VERSION + 1, "run": {"kitctl": "9.0.0"}, "anything": {"else": 1}})
    with pytest.raises(DocumentError, match=f"version {VERSION + 1}, and this kittrain reads {VERSION}: {older} with"):
        document.read(text)


@pytest.mark.parametrize("value", [5, "text", True, [1], {"a": 1}, None, "", False])
@pytest.mark.parametrize("path", ["newKey", "snapshots.newKey", "policy.newKey"])
def test_a_setting_that_an_older_image_does_not_know_is_refused_by_name(path: str, value: object) -> None:
    section, _, key = path.rpartition(".")
    job = {section: {key: value}} if section else {key: value}
    with pytest.raises(EnvError, match=f"^KIT_SPEC: {path}: not known: the image's kittrain is older than kitctl"):
        node_env(told(job))
    with pytest.raises(EnvError, match=r"^KIT_SPEC: run\.newKey: not known"):
        node_env(told(run={"newKey": value}))


def test_a_key_with_its_default_reaches_an_image_that_does_not_know_it() -> None:
    """So an older image refuses only what it would have to do: defaults are left out."""
    assert "everySteps" not in document.write(JobKeys(snapshots=Snapshots(every_steps=100)), RunFacts())


def settings(kind: type[Record], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    sent = sent_fields(kind) if kind is not RunFacts else kind.__fields__
    for name, hint in ((name, hint) for name, hint in hints(kind).items() if name in sent):
        yield from settings(hint, (*path, name)) if is_record(hint) else [(*path, name)]


def test_each_setting_has_a_variable_of_its_own() -> None:
    names = [variable_of(path) for kind in (JobKeys, RunFacts) for path in settings(kind)]
    assert len(set(names)) == len(names)
    own = {value for name, value in vars(variables).items() if name.startswith("KIT_")}
    assert own & set(names) == {"KIT_RESTART_IN_PLACE"}, "a switch that a job may set is the run's setting"


def test_agents_and_ranks_read_nothing_that_is_not_sent() -> None:
    """A setting without ``Sent`` has its default there, whatever the job file says."""
    sections = {name: hint for name, hint in hints(JobKeys).items() if is_record(hint)}
    unread = {("job", name) for name in JobKeys.__fields__ if name not in sent_fields(JobKeys)}
    unread |= {
        (section, name)
        for section, kind in sections.items()
        for name in kind.__fields__
        if name not in sent_fields(kind)
    }
    read = set()
    for file in (ROOT / "trainer" / "kittrain").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                read.add((node.value.attr, node.attr))
    assert ("snapshots", "every_steps") in read, "the search finds what is read"
    assert read & unread == set()


def test_a_document_fits_into_a_variable() -> None:
    longest = document.write(JobKeys(nccl=Nccl(interface="x" * 1000)), RunFacts())
    assert len(longest) < LIMIT < 128 * 1024
