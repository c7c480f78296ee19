"""All tables of causes, and what a row tells of a message. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kitctl.state.why.containers import CONTAINERS
from kitctl.state.why.data import DATA
from kitctl.state.why.distributed import DISTRIBUTED
from kitctl.state.why.ends import ENDS, PODS
from kitctl.state.why.groups import GROUPS
from kitctl.state.why.hangs import HANGS
from kitctl.state.why.images import IMAGES
from kitctl.state.why.libraries import LIBRARIES
from kitctl.state.why.losses import LOSSES
from kitctl.state.why.network import NETWORK
from kitctl.state.why.python import PYTHON
from kitctl.state.why.rule import Family, brief
from kitctl.state.why.scheduling import SCHEDULING
from kitctl.state.why.scripts import SCRIPTS
from kitctl.state.why.services import SERVICES
from kitctl.state.why.snapshots import SNAPSHOTS
from kitctl.state.why.starts import STARTS
from kitctl.state.why.tensors import TENSORS
from kitctl.state.why.training import TRAINING
from kitctl.state.why.volumes import VOLUMES

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
    TRAINING,
    DATA,
    LIBRARIES,
    SERVICES,
    SCRIPTS,
    NETWORK,
    HANGS,
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
