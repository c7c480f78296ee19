"""A job's settings for tests, by path: ``job(snapshots__keep=1)``."""

from __future__ import annotations

from typing import Any

from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.record import camel
from kittrain.job.env import ALONE


def job(**settings: Any) -> JobKeys:
    """The settings of a job that has only these; ``__`` stands between a section and its key."""
    given: dict[str, Any] = document.written(ALONE)
    for path, value in settings.items():
        *sections, key = map(camel, path.split("__"))
        place = given
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return document.build(JobKeys, given)
