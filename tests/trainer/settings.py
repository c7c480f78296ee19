"""A job's settings for tests, by path: ``job(snapshots__keep=1)``."""

from __future__ import annotations

from typing import Any

from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.record import camel
from kittrain.job.env import ALONE, RankEnv


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


def rank_of(**fields: Any) -> RankEnv:
    """A rank's environment, with the settings of its job among the fields: ``rank_of(rank=1, snapshots__keep=1)``."""
    own = {name: value for name, value in fields.items() if name in RankEnv.__dataclass_fields__}
    settings = {name: value for name, value in fields.items() if name not in own}
    return RankEnv(**({"job": job(**settings)} | own))
