"""What a submission to a cluster is refused for, before anything is created."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base.errors import UsageError
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.submit import preflight
from kitjob.sections import Snapshots
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit


def job(**changes: Any) -> JobSpec:
    return JobSpec(name="run", command=("train.py",), resume=True, snapshots=Snapshots(**changes))


def test_nothing_is_resumed_from_volumes_that_are_gone() -> None:
    with pytest.raises(UsageError, match="an earlier run's snapshots went with its pods") as error:
        preflight.check_resume(job(storage="perNode"))
    assert "--continue s3://BUCKET/PREFIX" in (error.value.fix or "")


@pytest.mark.parametrize("changes", [{}, {"storage": "perNode", "mirror": "s3://bucket/run"}])
def test_a_claim_and_a_mirror_outlive_a_job(changes: dict[str, Any]) -> None:
    preflight.check_resume(job(**changes))


def test_gpus_of_another_name_than_those_of_the_nodes_are_refused_with_the_names_there_are(
    server: ApiServer, kit: Kit
) -> None:
    spec = JobSpec(name="run", gpus_per_node=1, gpu_resource="nvidia.com/mig-1g.10gb")
    with pytest.raises(UsageError, match=r"no node of the cluster has any nvidia.com/mig-1g.10gb: .* have no devices"):
        preflight.check_gpus(kit.target().api, spec)
    server.put("nodes", "a", "", status={"allocatable": {"nvidia.com/gpu": "4", "cpu": "8", "amd.com/gpu": "1"}})
    with pytest.raises(UsageError, match=r"the nodes have amd.com/gpu, nvidia.com/gpu") as error:
        preflight.check_gpus(kit.target().api, spec)
    assert "gpuResource" in (error.value.fix or "")
    preflight.check_gpus(kit.target().api, JobSpec(name="run", gpus_per_node=4))


DRY_RUN = ("--dry-run=server", "-o", "name")


def refused(kit: Kit, server: ApiServer, *words: str) -> str:
    """What a submission is told that is refused, by ``submit`` and by its dry run alike."""
    real = kit("submit", "--name", "run", *words, exit_code=2)
    assert kit("submit", "--name", "run", *words, *DRY_RUN, exit_code=2) == real
    assert server.written() == []
    return real


def claim(server: ApiServer, *modes: str) -> None:
    server.put("persistentvolumeclaims", "data", spec={"accessModes": [*modes]}, status={"phase": "Bound"})


def test_a_dry_run_refuses_what_submit_refuses(server: ApiServer, kit: Kit) -> None:
    assert "no claim 'data'" in refused(kit, server, "--claim", "data")
    claim(server, "ReadWriteOnce")
    assert "but 2 nodes need ReadWriteMany" in refused(kit, server, "--claim", "data", "--nodes", "2")
    server.put("resourcequotas", "team", spec={}, status={"hard": {"pods": "1"}, "used": {}})
    assert "can never hold it" in refused(kit, server, "--nodes", "2")


def test_a_dry_run_without_checks_prints_what_submit_would_apply(server: ApiServer, kit: Kit) -> None:
    assert "job.batch/run" in kit("submit", "--name", "run", "--claim", "data", "--no-checks", *DRY_RUN)
    assert server.written() == []


def test_a_dry_run_knows_the_job_of_that_name(kit: Kit) -> None:
    kit("submit", "--name", "run")
    assert "already exists" in kit("submit", "--name", "run", *DRY_RUN, exit_code=2)
    assert "job.batch/run" in kit("submit", "--name", "run", "--replace", *DRY_RUN)


@pytest.mark.parametrize("modes", [("ReadOnlyMany",), ("ReadOnlyMany", "ReadWriteOnce")])
def test_a_claim_that_can_only_be_read_is_refused(server: ApiServer, kit: Kit, modes: tuple[str, ...]) -> None:
    claim(server, *modes)
    if len(modes) > 1:
        kit("submit", "--name", "run", "--claim", "data")
        return
    told = "claim 'data' is ReadOnlyMany, and a job writes its snapshots to it"
    assert told in refused(kit, server, "--claim", "data")
    assert told in kit("doctor", "--claim", "data", exit_code=1)
