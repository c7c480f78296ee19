"""Torch's c10d rendezvous: a store on node 0 with all nodes as clients, leaving without closing it, and whole jobs."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous import RendezvousConnectionError

from kittrain.agent.rendezvous import c10d
from kittrain.agent.rendezvous.c10d import C10dBackend, C10dRendezvous
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.env import NodeEnv, node_env
from tests.trainer.nodes import SCRIPTS, ColdNodes, free_port

SETTINGS = RendezvousSettings(last_call_timeout=1)


def join(env: NodeEnv) -> C10dRendezvous:
    backend = C10dBackend(env, SETTINGS)
    backend.connect(deadline=time.monotonic() + 30)
    return backend.handler("127.0.0.1")


def test_a_node_that_leaves_is_removed_at_once_and_the_rendezvous_stays_open() -> None:
    env = node_env({"PET_NNODES": "1:2", "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}", "KIT_NODE_INDEX": "1"})
    host = c10d.host_store(env)
    first, second = join(env), join(env)
    assert first.next_rendezvous().world_size == 1
    assert first.done(timeout=0.0)
    first.leave()
    assert not second.is_closed()  # asks the store for the state
    assert second._state_holder.state.participants == {}
    assert second.next_rendezvous().world_size == 1
    second.leave()
    del host


def test_a_round_that_loses_nodes_as_it_begins_starts_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    env = node_env({"PET_NNODES": "2:3", "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}", "KIT_NODE_INDEX": "1"})
    host = c10d.host_store(env)
    first, second = join(env), join(env)
    formed = threading.Event()

    def fail_start() -> None:
        formed.set()
        raise RendezvousConnectionError("killed")

    def lose_other_node() -> None:
        assert formed.wait(30)
        second.leave()
        first._state_holder.sync()

    monkeypatch.setattr(first._state_holder, "_cache_duration", 0)
    monkeypatch.setattr(second, "_start_heartbeats", fail_start)
    monkeypatch.setattr(first, "_start_heartbeats", lose_other_node)
    with ThreadPoolExecutor() as pool:
        other = pool.submit(second.next_rendezvous)
        with pytest.raises(RendezvousConnectionError, match=r"only 1 node\(s\) were left"):
            first.next_rendezvous()
        with pytest.raises(RendezvousConnectionError, match="killed"):
            other.result()
    first.leave()
    del host


@pytest.mark.slow
def test_a_job_on_c10d_survives_the_loss_of_node_0(tmp_path: Path) -> None:
    with ColdNodes(tmp_path, str(SCRIPTS / "steps.py"), PET_MAX_RESTARTS="0", KIT_RENDEZVOUS_BACKEND="c10d") as nodes:
        nodes.start(0, 1)
        for index in (0, 1):  # otherwise node 0 may be killed before its rank has printed this
            nodes.until(index, "world of 2")
        nodes.kill(0)
        nodes.start(0)
        nodes.until(0, "world of 2", times=2)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        assert nodes.report()["round"] == 2
