"""Addresses that a script gives for its process group are of one start; the job's own are used instead."""

from __future__ import annotations

from typing import Any

import pytest

from kittrain.node.init_method import adapted, set_by_script

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
def test_a_group_of_all_ranks_meets_at_the_jobs_own_address(given: dict[str, Any]) -> None:
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
def test_other_arguments_stay(given: dict[str, Any], environ: dict[str, str]) -> None:
    assert adapted(given, environ) == (given, "")


def test_a_group_of_other_processes_is_left_alone_and_told() -> None:
    given = {"init_method": "file:///shared/file", "rank": 0, "world_size": 4}
    found, remark = adapted(given, RANK)
    assert found == given
    assert "rank 0 is not this process's RANK, which is 1" in remark


@pytest.mark.parametrize("backend", ["mpi", "MPI", "cpu:mpi,cuda:nccl"])
def test_mpi_gets_a_clear_answer(backend: str) -> None:
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
