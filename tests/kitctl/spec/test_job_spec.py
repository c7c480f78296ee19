"""A spec is validated at its construction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kitctl import JobSpec, load
from kitctl.base.errors import SpecError
from kitjob.record import replace
from kitjob.sections import Resources, Snapshots


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"nodes": "banana"}, 'nodes: "banana" is not allowed; fix: give a whole number of at least 1, or write it'),
        ({"nodes": 0}, "nodes: 0 is not allowed"),
        ({"nodes": "4:2"}, "nodes: 4:2 has a minimum above its maximum; fix: write 2:4"),
        ({"gpus_per_node": True}, "gpusPerNode: true is not allowed"),
        ({"name": "Not_A_Label"}, "name: 'Not_A_Label' is not a DNS label"),
        ({"name": Path("digits")}, 'name: "digits" is not allowed; fix: give text'),
        (
            {"kind": "Deployment"},
            'kind: "Deployment" is not allowed; fix: give one of auto, IndexedJob, TrainJob, JobSet',
        ),
        ({"command": "train.py"}, 'command: "train.py" is not allowed; fix: give a list, as in [a, b]'),
        ({"command": ()}, "command: is empty"),
        ({"env": {"A": 1}}, "env.A: 1 is not allowed; fix: give text"),
        ({"env": {"WORLD_SIZE": "1"}}, "env.WORLD_SIZE: is set by the launcher"),
        ({"snapshots": {"keep": 3}}, "snapshots: a mapping is not allowed; fix: give a Snapshots"),
        ({"snapshots": Snapshots(keep=0)}, "snapshots.keep: 0 is not allowed"),
        ({"resources": Resources(requests={"cpu": "many"})}, 'resources.requests.cpu: "many" is not allowed'),
        ({"volumes": [{}]}, "volumes[0]: a mapping is not allowed; fix: give a Volume"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_at_construction(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        JobSpec(**fields)
    assert [str(one)[: len(problem)] for one in caught.value.problems] == [problem]


def test_a_changed_spec_is_checked_again() -> None:
    with pytest.raises(SpecError, match="nodes: 0 is not allowed"):
        replace(JobSpec(), nodes=0)


@pytest.mark.parametrize("nodes", [3, "3", "3:3"])
def test_equal_jobs_have_equal_specs(nodes: int | str) -> None:
    spec = JobSpec(command=["train.py"], nodes=nodes)  # type: ignore[arg-type]
    assert spec == JobSpec(name="train", command=("train.py",), nodes=3)
    assert hash(spec.command)


def test_a_job_file_is_loaded_with_its_name_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("nodes: 2\ncommand: [train.py]\n")
    assert load(path) == JobSpec(command=("train.py",), nodes=2)
    path.write_text("kind: Deployment\n")
    with pytest.raises(SpecError, match=r"job\.yaml"):
        load(path)


@pytest.mark.parametrize(
    ("given", "nodes", "spares", "pods"),
    [("8+1", 8, 1, 9), ("2:4+2", "2:4", 2, 6), ("3:3+1", 3, 1, 4), ("3+0", 3, 0, 3)],
)
def test_spares_may_be_written_behind_the_nodes(given: str, nodes: int | str, spares: int, pods: int) -> None:
    spec = JobSpec(nodes=given)
    assert (spec.nodes, spec.spares, spec.all_nodes) == (nodes, spares, pods)
    assert spec == JobSpec(nodes=nodes, spares=spares)


def test_there_are_spares_only_next_to_the_maximum() -> None:
    assert [JobSpec(nodes="2:4+1").started(nodes) for nodes in (2, 3, 4)] == [2, 3, 5]
