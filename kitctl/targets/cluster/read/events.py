"""The events of a job's object, as far as this user may read them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kitctl.base.errors import Forbidden
from kitctl.kinds import of_object
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read.conditions import time_of


def warning_events(api: Api, job: Object) -> Sequence[Object]:
    """The warning events of this job; not those of earlier ones of its name."""
    where, creator = job["metadata"], of_object(job).pod_owner(job["metadata"]["name"])
    found: list[Object] = []
    with suppress(Forbidden):
        found += _warnings(api, where["namespace"], f"involvedObject.uid={where['uid']}")
        if creator != where["name"]:
            theirs = _warnings(api, where["namespace"], f"involvedObject.name={creator}")
            found += (one for one in theirs if time_of(one) >= where["creationTimestamp"])
    return found


def _warnings(api: Api, namespace: str, about: str) -> list[Object]:
    return api.select("Event", namespace, fieldSelector=f"type=Warning,{about}")
