"""A script's own init_method is replaced by the job's address, since it is only valid for one start."""

from __future__ import annotations

from typing import Any

import pytest

from kittrain.agent.hooks.launching.init_method import adapted, set_by_script

RANK = {"RANK": "1", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    "given",
    [
        {"init_method": "file:///shared/file", "rank": 1, "world_size": 4},
        {"init_method": "tcp://10.0.0.1:23456", "rank": 1, "world_size": 4},
        {"init_method": "tcp://10.0.0.1:23456?rank=1&world_size=4"},
        {"init_method": "file:///shared/file"},
    ],
)
def test_a_group_of_all_ranks_uses_the_jobs_address(given: dict[str, Any]) -> None:
    found, remark = adapted({"backend": "gloo", **given}, RANK)
    assert found == {"backend": "gloo"}
    assert f"instead of {given['init_method']}" in remark


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({}, RANK),
        ({"init_method": "env://"}, RANK),
        ({"init_method": None, "backend": None}, RANK),
        ({"init_method": "tcp://h:1", "rank": 1, "world_size": 4}, {}),
        ({"init_method": "tcp://h:1", "store": object(), "rank": 1, "world_size": 4}, RANK),
    ],
)
def test_other_arguments_are_kept(given: dict[str, Any], environ: dict[str, str]) -> None:
    assert adapted(given, environ) == (given, "")


def test_a_group_of_other_processes_is_unchanged_with_a_warning() -> None:
    given = {"init_method": "file:///shared/file", "rank": 0, "world_size": 4}
    found, remark = adapted(given, RANK)
    assert found == given
    assert "rank 0 is not this process's RANK, which is 1" in remark


def test_a_group_of_more_ranks_than_there_are_is_warned_of() -> None:
    given = {"backend": "gloo", "rank": 1, "world_size": 8}
    found, remark = adapted(given, RANK)
    assert found == given
    assert "waits for a group that is not this job's: world_size 8 is not this process's WORLD_SIZE" in remark
    assert adapted(given | {"world_size": 4}, RANK)[1] == ""


@pytest.mark.parametrize("backend", ["mpi", "MPI", "cpu:mpi,cuda:nccl"])
def test_mpi_is_an_error_with_a_fix(backend: str) -> None:
    with pytest.raises(RuntimeError, match=r"kitctl starts the ranks, not mpirun.*gloo"):
        adapted({"backend": backend}, RANK)


@pytest.mark.parametrize(
    ("given", "port", "changed"),
    [
        ({}, "12355", "MASTER_PORT=12355"),
        ({"rank": 1, "world_size": 4, "init_method": "env://"}, "12355", "MASTER_PORT=12355"),
        ({}, "29500", ""),
        ({"rank": 0, "world_size": 2}, "12355", ""),
        ({"store": object()}, "12355", ""),
    ],
)
def test_an_address_that_the_script_sets_is_not_used(given: dict[str, Any], port: str, changed: str) -> None:
    started = {"MASTER_ADDR": "host", "MASTER_PORT": "29500"}
    assert set_by_script(given, {**RANK, **started, "MASTER_PORT": port}, started) == changed
