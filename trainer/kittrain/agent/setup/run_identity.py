"""Makes the run id unique with the uid of the job object, where the pod's environment does not have it.

Kubernetes labels an Indexed Job's pods with the job's uid. Kubeflow's operator does not, and a rendered manifest may be
applied twice. So the agent asks the API server for the uid of the object that owns its pod.

Why: decision 29.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import replace

from kitjob import record
from kittrain.job.env import NodeEnv
from kittrain.system.apiserver import ApiServer, DeniedError, NoAccountError, retry_request


def with_run_uid(
    node: NodeEnv, environ: MutableMapping[str, str], log: Callable[[str], None], server: ApiServer | None = None
) -> NodeEnv:
    """The node with a unique run id, if the API server grants access; also set in ``environ``, for the ranks.

    Raises:
        ApiError: the API server does not answer.
    """
    if not node.run.owner:
        return node
    group, resource, name = node.run.owner.rsplit("/", 2)
    try:
        uid = retry_request(lambda: (server or ApiServer()).get(group, resource, name)["metadata"]["uid"])
    except (NoAccountError, DeniedError) as error:
        log(f"warning: the run id is not unique: another run of this job looks the same ({node.run.owner}: {error})")
        return node
    environ["PET_RDZV_ID"] = f"{node.run_id}-{uid}"
    return replace(node, run_id=environ["PET_RDZV_ID"], run=record.replace(node.run, owner=""))
