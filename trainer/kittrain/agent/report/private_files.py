"""What is said of checkpoints in nodes' own folders: the first that is saved, and those that differ between nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from kittrain.agent.rendezvous.resumes import Resume, difference
from kittrain.job.env import NodeEnv
from kittrain.system.heartbeat_files import LoadedFile

OTHERS_SAVE: Final = 3.0  # seconds in which the other nodes save theirs, if they do
_COUNTED: Final = re.compile(r"(?:^|(?:step|epoch|iter|iteration|checkpoint|ckpt)s?[-_=]?)\d+$")


class PrivateFiles:
    """Of one node, over all rounds.

    Attributes:
        notice: that a rank has saved a checkpoint which no other node finds; empty: none has.
        difference: that the ranks of this round train from different states; empty: that is not known.
        resume: from what this node's ranks have gone on in this round; None: that is not known, or they begin.
    """

    def __init__(self, node: NodeEnv) -> None:
        self._node = node
        self._saved: tuple[int, str, float] | None = None  # the first checkpoint: its rank, its name, and when
        self._alone = node.job.all_nodes > 1  # not every node is known to have saved one
        self._told = False
        self.notice = self.difference = ""
        self.resume: Resume | None = None

    def begin(self) -> None:
        """A round begins."""
        self.difference, self.resume = "", None

    def resumed(self, file: LoadedFile | None) -> None:
        """This node's ranks have started again, and train: from that file, or from none."""
        index = self._node.node_index
        self.resume = Resume(node=index) if file is None else Resume(node=index, **vars(file))

    def observe(
        self, saved: tuple[int, str] | None, resumes: Sequence[Resume], *, all_saved: bool = False
    ) -> Iterator[str]:
        """Take the first checkpoint, with its rank, and how all nodes resumed; yields what is new.

        Where each node saves one, all find one. So the first is told once the others have had the time to, or their
        ranks have ended.
        """
        if saved and not self._saved:
            self._saved = *saved, time.monotonic()
        if all_saved and self._alone:
            self._alone = False
            self.notice = self.notice and self._text()
        if self._saved and (not self._alone or time.monotonic() > self._saved[2] + OTHERS_SAVE):
            yield from self.end()
        if not self.difference and (found := difference(resumes)):
            self.difference = found
            yield found

    def end(self) -> Iterator[str]:
        """Nobody will save any more: yields what is told of the first checkpoint, unless it was."""
        if self._saved and not self._told:
            self._told, self.notice = True, self._text()
            yield from filter(None, [self.notice])

    def _text(self) -> str:
        """What becomes of the first checkpoint; empty if that does no harm."""
        if not self._saved:
            return ""
        rank, name, _ = self._saved
        told = (
            ("ranks of other nodes do not find it there", self._alone),
            ("it is gone with its pod", self._node.run.restart_in_place),
        )
        fates = [fate for fate, given in told if given]
        folder = _kept(PurePath(name).parent).as_posix()
        fix = f"use --outputs {folder}" if folder != "." else "save it in a folder, and name that with --outputs"
        return f"rank {rank} has saved {name} to its node's own folder: {', and '.join(fates)}; {fix}" if fates else ""


def _kept(folder: PurePath) -> PurePath:
    """The folder of all checkpoints: not ``checkpoint-500``, which is one of them, nor what is in that."""
    counted = next((at for at, part in enumerate(folder.parts) if at and _COUNTED.search(part)), None)
    return folder if counted is None else PurePath(*folder.parts[:counted])
