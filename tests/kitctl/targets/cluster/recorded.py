"""Jobs recorded on a real cluster: ``objects/*.json`` are kubectl's output, without unused fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from kitctl.state.facts import JobFacts
from kitctl.targets.cluster.read import job_facts

Object = dict[str, Any]


class Recorded(NamedTuple):
    """The objects of one job."""

    job: Object
    pods: list[Object]
    config_map: Object | None
    events: list[Object]

    def facts(self, *, now: float = 0.0) -> JobFacts:
        """The facts that kitctl derives from the objects at that time."""
        return job_facts.from_objects(self.job, self.pods, self.config_map, target="kind", now=now, events=self.events)


def recorded(name: str) -> Recorded:
    """Read the job in that file."""
    return Recorded(**json.loads(Path(__file__).with_name("objects").joinpath(f"{name}.json").read_text()))
