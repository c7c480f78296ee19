"""The events of a job's object, as far as this user may read them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kitctl.errors import Forbidden
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.resources import Object


def warning_events(api: Api, job: Object) -> Sequence[Object]:
    """The warning events of this job; not those of earlier ones of its name."""
    where = job["metadata"]
    chosen = f"type=Warning,involvedObject.uid={where['uid']}"
    with suppress(Forbidden):
        return api.select("Event", where["namespace"], fieldSelector=chosen)
    return ()
