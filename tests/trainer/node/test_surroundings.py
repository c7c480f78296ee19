"""Facts of the pod in, decisions out."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest

from kittrain.env import NodeEnv, node_env
from kittrain.node.surroundings import (
    CONTAINER_SHM,
    Facts,
    SurroundingsError,
    check_gpus,
    decide,
    interfaces,
    look,
    share_cores,
    source_address,
)


def node(**env: str) -> NodeEnv:
    return node_env({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "job-0.job:29400", **env})


def facts(*, local_addr: str = "10.1.2.3", shm_bytes: int = 1 << 31) -> Facts:
    known = {"127.0.0.1": "lo", "10.1.2.3": "eth0", "192.168.7.1": "docker0"}
    return Facts(local_addr=local_addr, interfaces=known, shm_bytes=shm_bytes)


def test_the_interface_is_the_one_of_the_route() -> None:
    assert decide(node(), facts(), {}).env == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    assert decide(node(), facts(local_addr="127.0.0.1"), {}).env["GLOO_SOCKET_IFNAME"] == "lo"


def test_an_address_that_no_interface_has_decides_nothing() -> None:
    assert decide(node(), facts(local_addr="10.9.9.9"), {}).env == {}


def test_what_the_user_set_stays() -> None:
    assert decide(node(), facts(), {"GLOO_SOCKET_IFNAME": "ib0"}).env == {"NCCL_SOCKET_IFNAME": "eth0"}
    assert decide(node(KIT_INTERFACE="ib0"), facts(), {}).env["NCCL_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize(
    ("procs", "environ", "threads"),
    [("1", {}, None), ("2", {}, "1"), ("2", {"OMP_NUM_THREADS": "4"}, "4")],
)
def test_ranks_of_one_node_do_not_fight_for_its_cores(
    procs: str, environ: Mapping[str, str], threads: str | None
) -> None:
    shared = dict(environ)
    share_cores(node(PET_NPROC_PER_NODE=procs), shared)
    assert shared.get("OMP_NUM_THREADS") == threads


def test_a_proxy_is_kept_away_from_the_jobs_own_nodes() -> None:
    environ = {"https_proxy": "http://proxy:3128", "no_proxy": "localhost"}
    env = decide(node(), facts(), environ).env
    assert env["no_proxy"] == env["NO_PROXY"] == "localhost,job-0.job,10.1.2.3"
    assert "no_proxy" not in decide(node(), facts(), {}).env


def test_small_shared_memory_is_told_where_it_hurts() -> None:
    assert decide(node(), facts(shm_bytes=CONTAINER_SHM), {}).warnings == ()
    (warning,) = decide(node(PET_NPROC_PER_NODE="2"), facts(shm_bytes=CONTAINER_SHM), {}).warnings
    assert "64 MiB" in warning


def test_loopback_between_machines_is_told() -> None:
    (warning,) = decide(node(), facts(), {"NCCL_SOCKET_IFNAME": "lo"}).warnings
    assert warning.startswith("NCCL_SOCKET_IFNAME=lo")
    assert decide(node(), facts(local_addr="127.0.0.1"), {"NCCL_SOCKET_IFNAME": "lo"}).warnings == ()


def test_nccl_remembers_its_last_collectives_where_there_are_gpus() -> None:
    gpus = {"KIT_GPUS_PER_NODE": "4", "KIT_LOG_DIR": "/logs", "KIT_NODE_INDEX": "2"}
    env = decide(node(**gpus), facts(), {"TORCH_NCCL_TRACE_BUFFER_SIZE": "7"}).env
    assert env["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert env["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == "/logs/node-2/nccl-trace-rank-"
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in env
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in decide(node(**gpus, KIT_BACKEND="gloo"), facts(), {}).env


def test_absent_gpus_are_an_error_unless_gloo_goes_on_without() -> None:
    with pytest.raises(SurroundingsError, match="4 GPUs were asked for, 3 are visible"):
        check_gpus(node(KIT_GPUS_PER_NODE="4"), visible=3)
    check_gpus(node(KIT_GPUS_PER_NODE="4"), visible=4)
    check_gpus(node(KIT_GPUS_PER_NODE="4", KIT_BACKEND="gloo"), visible=0)


def test_loopback_is_found_on_this_machine() -> None:
    assert source_address("127.0.0.1", 29400) == "127.0.0.1"
    assert interfaces()["127.0.0.1"] in {name for _, name in socket.if_nameindex()}


def test_an_address_that_was_given_is_taken() -> None:
    assert look(node(PET_LOCAL_ADDR="10.0.0.7")).local_addr == "10.0.0.7"
    assert look(node(PET_RDZV_ENDPOINT="name.invalid:29400")).local_addr == ""
