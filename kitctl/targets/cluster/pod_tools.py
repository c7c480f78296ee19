"""Runs tools of the trainer in the pods of a job, next to the agents: what looks into its ranks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from kitctl.base import names
from kitctl.base.deadline import within
from kitctl.base.errors import Forbidden, KitError, TargetError
from kitctl.state.running_job import RankPlace
from kitctl.state.stacks import NodeStacks, of_nodes
from kitctl.state.usage import NodeUsage
from kitctl.state.usage import of_nodes as usage_of_nodes
from kitctl.targets import Session
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import job_facts
from kitctl.targets.conflicts import node_gone

T = TypeVar("T")
SECONDS: Final = 20.0  # for a tool that ends by itself, to start Python on a busy node included
ANSWER_BYTES: Final = 16 << 20  # of one tool
CONNECTIONS: Final = 32  # connections


def running(pods: Sequence[Object], nodes: frozenset[int] = frozenset()) -> dict[int, Object]:
    """The running pod of each node, by node; empty: of all nodes."""
    found = {job_facts.node_index(pod) or 0: pod for pod in pods if job_facts.is_running(pod)}
    return {index: pod for index, pod in sorted(found.items()) if not nodes or index in nodes}


def pod_of(pods: Sequence[Object], node: int) -> Object:
    """The running pod of a node.

    Raises:
        ConflictError: there is none.
    """
    found = running(pods, frozenset({node}))
    if node not in found:
        raise node_gone(node)
    return found[node]


def attend(api: Api, pod: Object, user: str, place: RankPlace, command: Sequence[str], session: Session) -> int:
    """Run a command where a rank is, with the user's input and output; Ctrl-C interrupts it.

    Raises:
        TargetError: it could not be run.
    """
    where, container, mark = pod["metadata"], job_facts.container_name(pod), uuid.uuid4().hex
    session.announce(f"rank {place.rank}: pod {where['name']}, container {container}, by {user}")
    enter = [*job_facts.python(pod), names.ENTER_RANK, "--mark", mark]
    words = [*enter, "--rank", str(place.rank), "--", *command]
    try:
        return api.attend(where["namespace"], where["name"], words, session, container)
    except KeyboardInterrupt:  # with a terminal it is a byte of the input
        with suppress(KitError):
            output(api, pod, [names.ENTER_RANK, "--mark", mark, "--interrupt"])
        raise


def stacks(api: Api, pods: Sequence[Object], nodes: frozenset[int]) -> list[NodeStacks]:
    """The stacks of the ranks of running nodes.

    Raises:
        Forbidden: this user may not run commands in pods.
    """
    return _of_pods(api, running(pods, nodes), names.RANK_STACKS, of_nodes, NodeStacks)


def usage(api: Api, pods: Sequence[Object]) -> list[NodeUsage]:
    """What the ranks of running nodes use.

    Raises:
        Forbidden: this user may not run commands in pods.
    """
    return _of_pods(api, running(pods), names.RANK_USAGE, usage_of_nodes, NodeUsage)


def _of_pods(
    api: Api,
    pods: Mapping[int, Object],
    module: str,
    read: Callable[[Sequence[int], bytes], list[T]],
    silent: Callable[..., T],
) -> list[T]:
    """What a module prints in pods, read; of one that does not answer, why (``silent``)."""

    def ask(node: int, pod: Object) -> T:
        try:
            (answer,) = read([node], output(api, pod, [module]))
        except Forbidden:
            raise
        except TargetError as error:
            return silent(node=node, note=error.message)
        return answer

    if not pods:
        return []
    with ThreadPoolExecutor(max_workers=min(len(pods), CONNECTIONS)) as threads:
        return [*threads.map(ask, pods, pods.values())]


def profile(api: Api, pod: Object, place: RankPlace, steps: int, seconds: float) -> Iterator[bytes]:
    """A trace of some steps of a rank, as it arrives.

    Raises:
        TargetError: there is none.
    """
    where, container = pod["metadata"], job_facts.container_name(pod)
    command = [*job_facts.python(pod), *names.profile_command(place.rank, steps, seconds)]
    return api.execute(where["namespace"], where["name"], command, container=container)


def output(api: Api, pod: Object, words: Sequence[str]) -> bytes:
    """What a module of the trainer prints in a pod.

    Raises:
        TargetError: it failed, or took too long.
    """
    where, printed = pod["metadata"], bytearray()
    command = [*job_facts.python(pod), *words]

    def run() -> None:
        for part in api.execute(where["namespace"], where["name"], command, container=job_facts.container_name(pod)):
            printed.extend(part)
            if len(printed) > ANSWER_BYTES:
                raise TargetError(f"pod {where['name']} sends more than {ANSWER_BYTES >> 20} MiB")

    try:
        within(SECONDS, run)
    except TimeoutError as error:
        raise TargetError(f"pod {where['name']} did not answer within {SECONDS:.0f} s") from error
    return bytes(printed)
