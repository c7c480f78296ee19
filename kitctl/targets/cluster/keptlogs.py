"""The lines of pods that are gone, from where their agents kept them: the job's claim, read by a short-lived pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from kitctl.environment import read_agent_spec
from kitctl.errors import KitError
from kitctl.logs import Line, merge, parse
from kitctl.targets.cluster import companion, facts, lives
from kitctl.targets.cluster.api import Api, whole_lines
from kitctl.targets.cluster.companion import Run
from kitctl.targets.cluster.lives import Life, Read
from kitctl.targets.cluster.resources import Object

COMMAND: Final = ("python", "-P", "-m", "kittrain.log_copies")
AT_ONCE: Final = 20  # files that are read by one command: their names have to fit a request


class KeptLogs:
    """What was kept of one job, each life of a node once.

    Args:
        api: the server.
        job: as the server has it.
        tell: takes remarks for the person, as a line each.
    """

    def __init__(self, api: Api, job: Object, tell: Callable[[str], None]) -> None:
        self._api = api
        self._job = job
        self._tell = tell
        self._folder = read_agent_spec(facts.variables(job)).get("log_dir", "")
        self._done: set[str] = set()

    def lines(self, count: int, read: Sequence[Read]) -> Iterator[Line]:
        """The lines that were not read from pods, in the order of time; what cannot be had is told.

        Args:
            count: of the lives that are looked for.
            read: what was read.
        """
        what = f"the log{'s'[: count > 1]} of {count} pod{'s'[: count > 1]} that {'are' if count > 1 else 'is'} gone"
        if not self._folder:
            self._tell(f"{what} cannot be shown: a job keeps copies only where it keeps snapshots (snapshots.enabled)")
            return
        self._tell(f"{what}: a short-lived pod reads the copies on claim {facts.claim(self._job)}")
        try:
            with companion.beside(self._api, self._job) as run:
                yield from self._unread(run, read)
        except KitError as error:
            self._tell(f"warning: {what} cannot be read: {error.message}" + (f" ({error.fix})" if error.fix else ""))

    def _unread(self, run: Run, read: Sequence[Read]) -> Iterator[Line]:
        listed = whole_lines(run((*COMMAND, self._folder, "--list")))
        known = [msgspec.json.decode(line, type=Life) for line in listed]
        wanted = [(life, last) for life, last in lives.unread(known, read) if life.file not in self._done]
        self._done |= {life.file for life, _ in wanted}
        cut = [lives.after(self._read(run, [life]), last) for life, last in wanted if last]
        whole = [life for life, last in wanted if not last]
        chunks = [self._read(run, whole[at : at + AT_ONCE]) for at in range(0, len(whole), AT_ONCE)]
        yield from merge([*cut, *chunks])

    def _read(self, run: Run, chosen: Sequence[Life]) -> Iterator[Line]:
        for text in whole_lines(run((*COMMAND, self._folder, *(life.file for life in chosen)))):
            node, _, line = text.partition(" ")
            yield parse(line, int(node))
