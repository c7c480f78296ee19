"""The ranks' environment and warnings, derived from the host."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from kittrain.agent.setup.host_info import (
    CONTAINER_SHM,
    HostError,
    HostInfo,
    check_backend,
    check_gpus,
    flight_recorder_names,
    inspect,
    interfaces,
    launch_settings,
    share_cores,
    source_address,
)
from kittrain.job.env import NodeEnv, node_env
from tests.trainer.nodes import TIMEOUT, free_port
from tests.trainer.worlds import placed


def node(**env: str) -> NodeEnv:
    return node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "job-0.job:29400", **env})


def host(*, local_addr: str = "10.1.2.3", shm_bytes: int = 1 << 31, accelerated: bool = True) -> HostInfo:
    known = {"127.0.0.1": "lo", "10.1.2.3": "eth0", "192.168.7.1": "docker0"}
    return HostInfo(local_addr=local_addr, interfaces=known, shm_bytes=shm_bytes, accelerated=accelerated)


def test_the_interface_is_that_of_the_route() -> None:
    assert launch_settings(node(), host(), {}).env == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    assert launch_settings(node(), host(local_addr="127.0.0.1"), {}).env["GLOO_SOCKET_IFNAME"] == "lo"


def test_an_address_of_no_interface_sets_nothing() -> None:
    assert launch_settings(node(), host(local_addr="10.9.9.9"), {}).env == {}


def test_accelerate_uses_cpus_where_the_job_does() -> None:
    env = launch_settings(node(KIT_BACKEND="gloo"), host(), {}).env
    assert (env["ACCELERATE_USE_CPU"], env["ACCELERATE_TORCH_DEVICE"]) == ("true", "cpu")
    for settings in ({}, {"KIT_BACKEND": "gloo", "KIT_GPUS_PER_NODE": "1"}, {"KIT_BACKEND": "nccl"}):
        assert "ACCELERATE_USE_CPU" not in launch_settings(node(**settings), host(), {}).env
    bare = host(accelerated=False)
    assert launch_settings(node(), bare, {}).env["ACCELERATE_USE_CPU"] == "true"
    for settings in ({"KIT_GPUS_PER_NODE": "1"}, {"KIT_BACKEND": "nccl"}):
        assert "ACCELERATE_USE_CPU" not in launch_settings(node(**settings), bare, {}).env
    given = {"ACCELERATE_USE_CPU": "false"}
    assert "ACCELERATE_USE_CPU" not in launch_settings(node(KIT_BACKEND="gloo"), host(), given).env


def test_variables_of_the_user_are_kept() -> None:
    assert launch_settings(node(), host(), {"GLOO_SOCKET_IFNAME": "ib0"}).env == {"NCCL_SOCKET_IFNAME": "eth0"}
    assert launch_settings(node(KIT_NCCL_INTERFACE="ib0"), host(), {}).env["NCCL_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize(
    ("procs", "environ", "threads"),
    [("1", {}, None), ("2", {}, "1"), ("2", {"OMP_NUM_THREADS": "4"}, "4")],
)
def test_several_ranks_get_one_thread_each(procs: str, environ: Mapping[str, str], threads: str | None) -> None:
    shared = dict(environ)
    share_cores(node(PET_NPROC_PER_NODE=procs), shared)
    assert shared.get("OMP_NUM_THREADS") == threads


def test_the_jobs_nodes_are_excluded_from_the_proxy() -> None:
    environ = {"https_proxy": "http://proxy:3128", "no_proxy": "localhost"}
    env = launch_settings(node(), host(), environ).env
    assert env["no_proxy"] == env["NO_PROXY"] == "localhost,job-0.job,10.1.2.3"
    assert "no_proxy" not in launch_settings(node(), host(), {}).env


def test_small_shared_memory_is_a_warning_if_it_matters() -> None:
    assert launch_settings(node(), host(shm_bytes=CONTAINER_SHM), {}).warnings == ()
    (warning,) = launch_settings(node(PET_NPROC_PER_NODE="2"), host(shm_bytes=CONTAINER_SHM), {}).warnings
    assert "64 MiB" in warning


def test_loopback_between_hosts_is_a_warning() -> None:
    (warning,) = launch_settings(node(), host(), {"NCCL_SOCKET_IFNAME": "lo"}).warnings
    assert warning.startswith("NCCL_SOCKET_IFNAME=lo")
    assert launch_settings(node(), host(local_addr="127.0.0.1"), {"NCCL_SOCKET_IFNAME": "lo"}).warnings == ()


def test_the_nccl_flight_recorder_is_on_with_gpus() -> None:
    gpus = {"KIT_GPUS_PER_NODE": "4", "KIT_LOG_DIR": "/logs", "KIT_NODE_INDEX": "2"}
    size, file = flight_recorder_names()
    env = launch_settings(node(**gpus), host(), {size: "7"}).env
    assert env["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert env[file] == "/logs/node-2/nccl-trace-rank-"
    assert size not in env
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in launch_settings(node(**gpus, KIT_BACKEND="gloo"), host(), {}).env


RECORDED = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(4))
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(8), async_op=True)  # which rank 1 never calls
torch._C._distributed_c10d._dump_fr_trace_file(dist.get_rank())
import os
dist.get_rank() or __import__("time").sleep(1)
os._exit(0)
"""


@pytest.mark.wide
@pytest.mark.slow
def test_torch_records_under_these_names_without_a_warning(tmp_path: Path) -> None:
    """With gloo, which records collectives as NCCL does."""
    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace_file"):
        pytest.skip("this torch writes NCCL's record only")
    size, file = flight_recorder_names()
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RECORDED],
            env={**os.environ, **placed(rank, 2, port), size: "100", file: f"{tmp_path}/nccl-trace-rank-"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [one.communicate(timeout=TIMEOUT)[1] for one in ranks]
    assert [one.returncode for one in ranks] == [0, 0], errors
    assert not any("deprecated" in text for text in errors)
    last = [pickle.loads((tmp_path / f"nccl-trace-rank-{rank}").read_bytes())["entries"][-1] for rank in range(2)]
    assert [(one["collective_seq_id"], one["input_sizes"]) for one in last] == [(4, [[8]]), (3, [[4]])]


def test_missing_gpus_are_an_error_except_with_gloo() -> None:
    with pytest.raises(HostError, match="4 GPUs requested, but 3 visible"):
        check_gpus(node(KIT_GPUS_PER_NODE="4"), visible=3)
    check_gpus(node(KIT_GPUS_PER_NODE="4"), visible=4)
    check_gpus(node(KIT_GPUS_PER_NODE="4", KIT_BACKEND="gloo"), visible=0)


@pytest.mark.parametrize(
    ("env", "accelerated", "built_with", "told"),
    [
        ({}, False, {"nccl"}, "without gloo: choose an image that has it"),
        (
            {"KIT_BACKEND": "gloo", "KIT_GPUS_PER_NODE": "1"},
            True,
            {"nccl"},
            "without gloo: choose an image that has it",
        ),
        ({"KIT_GPUS_PER_NODE": "1"}, True, {"gloo"}, "without nccl: choose an image that has it, or --backend gloo"),
        ({"KIT_BACKEND": "nccl", "KIT_GPUS_PER_NODE": "1"}, False, set(), "without nccl: choose an image that has it"),
        ({}, False, {"gloo"}, ""),
        ({"KIT_GPUS_PER_NODE": "1"}, True, {"gloo", "nccl"}, ""),
        ({}, False, {"mpi"}, ""),
        ({"PET_NNODES": "1"}, False, set(), ""),
    ],
)
def test_a_torch_without_the_ranks_backend_is_an_error(
    env: dict[str, str], built_with: set[str], told: str, *, accelerated: bool
) -> None:
    message = ""
    try:
        check_backend(node(**env), torch="2.9.1", built_with=built_with, accelerated=accelerated)
    except HostError as error:
        message = str(error)
    assert message == (f"the image's torch 2.9.1 is built {told}" if told else "")


def test_loopback_is_found() -> None:
    assert source_address("127.0.0.1", 29400) == "127.0.0.1"
    assert interfaces()["127.0.0.1"] in {name for _, name in socket.if_nameindex()}


def test_a_given_address_is_used() -> None:
    assert inspect(node(PET_LOCAL_ADDR="10.0.0.7"), accelerated=True).local_addr == "10.0.0.7"
    assert inspect(node(PET_RDZV_ENDPOINT="name.invalid:29400"), accelerated=True).local_addr == ""
