"""Jobs as a real cluster had them: ``objects/*.json`` are kubectl's answers, without what nobody reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from kitctl.facts import JobFacts
from kitctl.targets.cluster import job_facts

Object = dict[str, Any]


class Recorded(NamedTuple):
    """What the API server has of one job."""

    job: Object
    pods: list[Object]
    config_map: Object | None
    events: list[Object]

    def facts(self, *, now: float = 0.0) -> JobFacts:
        """What kitctl reads from it at that time."""
        return job_facts.from_objects(self.job, self.pods, self.config_map, target="kind", now=now, events=self.events)


def recorded(name: str) -> Recorded:
    """The job of that file."""
    return Recorded(**json.loads(Path(__file__).with_name("objects").joinpath(f"{name}.json").read_text()))
