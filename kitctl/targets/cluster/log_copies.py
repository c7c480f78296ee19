"""The logs of deleted pods: a helper pod reads the copies that their agents wrote to the job's claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from kitctl.base.documents import read_run
from kitctl.base.errors import KitError
from kitctl.state.logs import Line, merge, parse
from kitctl.targets.cluster.connection.api import Api, split_lines
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import agent_runs, job_facts
from kitctl.targets.cluster.read.agent_runs import AgentRun, ReadLog
from kitctl.targets.cluster.submit import helper_pod
from kitctl.targets.cluster.submit.helper_pod import RunCommand

COMMAND: Final = ("kittrain.helper.log_copies",)
FILES_PER_COMMAND: Final = 20  # their names have to fit into the URL of one request


class LogCopies:
    """The log copies of one job; each run of an agent is read once.

    Args:
        api: the server.
        job: its object.
        warn: prints a line for the user.
    """

    def __init__(self, api: Api, job: Object, warn: Callable[[str], None]) -> None:
        self._api = api
        self._job = job
        self._warn = warn
        self._folder = read_run(job_facts.plain_environment(job)).log_dir
        self._read_files: set[str] = set()

    def lines(self, count: int, read: Sequence[ReadLog]) -> Iterator[Line]:
        """The lines that were not read from pods, sorted by time; warns if they cannot be read.

        Args:
            count: how many runs are missing.
            read: what was read.
        """
        what = f"the log{'s'[: count > 1]} of {count} deleted pod{'s'[: count > 1]}"
        if not self._folder:
            self._warn(f"{what} cannot be shown: a job writes copies only with snapshots (snapshots.enabled)")
            return
        self._warn(f"{what}: a helper pod reads the copies on claim {job_facts.snapshot_claim(self._job)}")
        try:
            with helper_pod.running(self._api, self._job) as run:
                yield from self._unread(run, read)
        except KitError as error:
            self._warn(f"warning: {what} cannot be read: {error.message}" + (f" ({error.fix})" if error.fix else ""))

    def _unread(self, run: RunCommand, read: Sequence[ReadLog]) -> Iterator[Line]:
        listed = split_lines(run((*COMMAND, self._folder, "--list")))
        known = [msgspec.json.decode(line, type=AgentRun) for line in listed]
        unread = [(one, last) for one, last in agent_runs.unread_runs(known, read) if one.file not in self._read_files]
        self._read_files |= {one.file for one, _ in unread}
        cut = [agent_runs.lines_after(self._read(run, [one]), last) for one, last in unread if last]
        whole = [one for one, last in unread if not last]
        chunks = [self._read(run, whole[at : at + FILES_PER_COMMAND]) for at in range(0, len(whole), FILES_PER_COMMAND)]
        yield from merge([*cut, *chunks])

    def _read(self, run: RunCommand, chosen: Sequence[AgentRun]) -> Iterator[Line]:
        for text in split_lines(run((*COMMAND, self._folder, *(one.file for one in chosen)))):
            node, _, line = text.partition(" ")
            yield parse(line, int(node))
