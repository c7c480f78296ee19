"""The job document: parsed values, overrides, and errors that name the field."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kittrain.job.env import node_env, rank_env
from kittrain.job.job_spec import EXIT_CODES
from kittrain.job.variables import EnvError

KUBEFLOWS = {"done": 0, "drained": 143, "retryable": 144, "fatal": 78}


def spec(**fields: Any) -> dict[str, str]:
    return {"KIT_SPEC": json.dumps({"version": 1, **fields})}


def test_null_and_empty_text_are_the_default() -> None:
    assert node_env(spec(report="", log_dir="", snapshot_every=None, backend="")) == node_env(spec())


def test_the_document_s_types_become_ours() -> None:
    node = node_env(spec(log_dir="/logs", hang_timeout=90, exit_codes=KUBEFLOWS, memory_every=5))
    assert (node.log_dir, node.hang_timeout, node.exit_codes) == (Path("/logs"), 90.0, KUBEFLOWS)
    assert node.memory_root == Path("/dev/shm")
    assert (node_env(spec(hang_timeout="off")).hang_timeout, node_env(spec(hang_timeout="auto")).hang_timeout) == (
        math.inf,
        None,
    )
    assert [rank_env(spec(resume=value)).resume for value in (False, True, "state")] == ["", "exact", "state"]
    assert node_env({}).exit_codes == EXIT_CODES


def test_the_document_wins_over_torchruns_variables_and_a_knob_over_both() -> None:
    environ = {"PET_NNODES": "3", "PET_MAX_RESTARTS": "1"}
    given = spec(min_nodes=2, max_nodes=4, snapshot_keep=3, from_scratch=False, backend="nccl")
    node = node_env(environ | given)
    assert (node.min_nodes, node.max_nodes, node.max_restarts) == (2, 4, 1)
    rank = rank_env(given | {"KIT_SNAPSHOT_KEEP": "5", "KIT_FROM_SCRATCH": "1", "KIT_BACKEND": "gloo"})
    assert (rank.snapshot_keep, rank.from_scratch, rank.backend) == (5, True, "gloo")


@pytest.mark.parametrize("knob", ["KIT_AUTO_BACKEND", "KIT_WARM_WORKERS", "KIT_MEMORY_ROOT"])
def test_variables_of_the_image_override_the_document(knob: str) -> None:
    values = {"KIT_AUTO_BACKEND": "gloo", "KIT_WARM_WORKERS": "0", "KIT_MEMORY_ROOT": "/ram"}
    node = node_env(spec(memory_every=1, backend="auto") | {knob: values[knob]})
    expected = {"KIT_AUTO_BACKEND": "auto", "KIT_WARM_WORKERS": "True", "KIT_MEMORY_ROOT": "/dev/shm"} | {
        knob: values[knob].replace("0", "False")
    }
    assert [str(value) for value in (node.backend, node.warm_workers, node.memory_root)] == [*expected.values()]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("snapshot_every", "7", "not a whole number: '7'"),
        ("snapshot_every", 1.5, "not a whole number: 1.5"),
        ("snapshot_every", True, "not a whole number: True"),
        ("snapshot_seconds", "x", r"not int \| NoneType: 'x'"),
        ("secret_required", 1, "not bool: 1"),
        ("backend", "mpi", r"not one of \('auto', 'nccl', 'gloo'\): 'mpi'"),
        ("backend", [], "not one of"),
        ("log_dir", 5, "not text: 5"),
        ("resume", "exact", "not bool"),
        ("hang_timeout", "5m", "not Literal"),
        ("rendezvous_conf", {"join_timeout": 5}, "not text: 5"),
        ("exit_codes", {"done": 0}, "not exactly done, drained, retryable, fatal: done"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(field: str, value: object, message: str) -> None:
    with pytest.raises(EnvError, match=f"^KIT_SPEC: {field}: {message}"):
        node_env(spec(**{field: value}))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "KIT_SPEC: not JSON"), ("[1]", "KIT_SPEC: not an object"), ("{}", "KIT_SPEC: version: not a whole number")],
)
def test_an_invalid_document_is_rejected(text: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        node_env({"KIT_SPEC": text})
    with pytest.raises(EnvError, match=message):
        rank_env({"KIT_SPEC": text})


def test_a_newer_format_is_refused_with_what_to_do() -> None:
    older = "the image's kittrain is older than kitctl 9.0.0; rebuild the image, or name one of kitctl's version"
    with pytest.raises(EnvError, match=f"^KIT_SPEC: version 2, and this kittrain reads 1: {older} with --image$"):
        node_env({"KIT_SPEC": json.dumps({"version": 2, "kitctl_version": "9.0.0", "anything": {"else": 1}})})


@pytest.mark.parametrize("value", [5, "text", True, [1], {"a": 1}])
def test_an_unknown_field_with_a_value_is_rejected(value: object) -> None:
    with pytest.raises(EnvError, match=r"^KIT_SPEC: new_knob: not known: the image's kittrain is older than kitctl"):
        node_env(spec(new_knob=value))


@pytest.mark.parametrize("value", [None, "", False, 0])
def test_an_unknown_field_without_a_value_is_ignored(value: object) -> None:
    assert node_env(spec(new_knob=value)) == node_env(spec())


def test_a_kitctl_that_is_older_than_the_document_is_refused() -> None:
    with pytest.raises(EnvError, match=r"^KIT_SPEC is not set: kitctl is older than the image's kittrain"):
        node_env({"KIT_EXIT_CODES": "IndexedJob"})
