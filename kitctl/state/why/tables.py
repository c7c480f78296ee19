"""All tables of causes, and what a row tells of a message. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kitctl.state.why.causes.checkpoints import CHECKPOINTS
from kitctl.state.why.causes.containers import CONTAINERS
from kitctl.state.why.causes.data import DATA
from kitctl.state.why.causes.distributed import DISTRIBUTED
from kitctl.state.why.causes.ends import ENDS, PODS
from kitctl.state.why.causes.groups import GROUPS
from kitctl.state.why.causes.hangs import HANGS
from kitctl.state.why.causes.images import IMAGES
from kitctl.state.why.causes.libraries import LIBRARIES
from kitctl.state.why.causes.losses import LOSSES
from kitctl.state.why.causes.network import NETWORK
from kitctl.state.why.causes.notes import NOTES
from kitctl.state.why.causes.python import PYTHON
from kitctl.state.why.causes.scheduling import SCHEDULING
from kitctl.state.why.causes.scripts import SCRIPTS
from kitctl.state.why.causes.services import SERVICES
from kitctl.state.why.causes.snapshots import SNAPSHOTS
from kitctl.state.why.causes.starts import STARTS
from kitctl.state.why.causes.tensors import TENSORS
from kitctl.state.why.causes.training import TRAINING
from kitctl.state.why.causes.volumes import VOLUMES
from kitctl.state.why.rule import Family, brief

FAMILIES: Final[tuple[Family, ...]] = (
    SCHEDULING,
    IMAGES,
    VOLUMES,
    CONTAINERS,
    STARTS,
    PODS,
    ENDS,
    LOSSES,
    SNAPSHOTS,
    CHECKPOINTS,
    TRAINING,
    DATA,
    LIBRARIES,
    SERVICES,
    SCRIPTS,
    NETWORK,
    HANGS,
    NOTES,
    GROUPS,
    DISTRIBUTED,
    TENSORS,
    PYTHON,  # the last: what a library says tells more
)
OF_RANK: Final = re.compile(r"^(?:before: )?(?:node \d+: )?(rank \d+) failed \((.*)\).*", re.DOTALL)
_BESIDE: Final = re.compile(r"((?:init container|sidecar) [\w.-]+): ")  # whose container does not start


class Match(NamedTuple):
    """What a row tells of a message.

    Attributes:
        cause: in a line.
        fix: what to do about it.
        code: the row's stable name.
        worded: whether the cause is in the table's own words.
        of_code: whether the script's own line is to be looked at.
    """

    cause: str = ""
    fix: str = ""
    code: str = ""
    worded: bool = False
    of_code: bool = False


UNKNOWN: Final = Match()


def around_error(text: str) -> str | None:
    """What is said after a rank's error; None if the text is of none."""
    found = OF_RANK.match(text)
    return text[found.end(2) :] if found else None


def look_up(text: str, traceback: str = "", *, local: bool, around: str | None = None) -> Match | None:
    """The row that tells of a message; None for an unknown one.

    What a rank says tells of no pod and no machine: causes of these are looked for in what is said ``around`` it.
    """
    said, beside = text, _BESIDE.match(text)
    if around is None and (error := OF_RANK.match(text)):
        text, said, around = f"{error[1]}: {error[2]}", error[2], around_error(text)
    for family in FAMILIES:
        where = said if family.of_ranks or around is None else around
        for rule in family.rules:
            if found := rule.matches(where, traceback):
                worded = rule.cause.format(*found.groups())
                return Match(
                    cause=brief(f"{beside[0] if beside and worded else ''}{worded or text}"),
                    fix=rule.fixed(found, local=local, beside=bool(beside)),
                    code=rule.code,
                    worded=bool(rule.cause),
                    of_code=family.of_code,
                )
    return None
