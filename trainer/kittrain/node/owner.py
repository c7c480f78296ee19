"""Which run this is, where nothing in the pod's environment tells one from the next of its name.

Kubernetes labels an Indexed Job's pods with the job's uid. Kubeflow's operator does not, and an object that was
rendered once may be applied twice: so the agent asks for the uid of the object that its pod belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import replace

from kittrain.env import NodeEnv
from kittrain.system.apiserver import ApiServer, DeniedError, NoAccountError, patiently


def identified(
    node: NodeEnv, environ: MutableMapping[str, str], say: Callable[[str], None], server: ApiServer | None = None
) -> NodeEnv:
    """The node with an id of its run that no other run has, if that can be found out; its ranks are told the same.

    Raises:
        ApiError: the API server does not answer.
    """
    if not node.owner:
        return node
    group, resource, name = node.owner.rsplit("/", 2)
    try:
        uid = patiently(lambda: (server or ApiServer()).get(group, resource, name)["metadata"]["uid"])
    except (NoAccountError, DeniedError) as error:
        say(f"warning: a further run of this job cannot be told from this one ({node.owner}: {error})")
        return node
    environ["PET_RDZV_ID"] = f"{node.run_id}-{uid}"
    return replace(node, run_id=environ["PET_RDZV_ID"], owner=None)
