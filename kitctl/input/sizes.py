"""The number of nodes, ranks and GPUs from another launcher's options. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kitctl.base.errors import UsageError

EXAMPLE: Final = "kitctl submit --nodes 2 --procs-per-node 4 -- train.py --epochs 5"


def size(name: str, values: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes, ranks and GPUs of each, and restarts, as fields of a job.

    Args:
        name: of the launcher.
        values: of the options, by their meaning.
        given: fields that kitctl's own flags set.

    Raises:
        UsageError: the numbers do not go together, or depend on a machine.
    """
    fields: dict[str, Any] = {}
    for meaning, value in values.items():
        if meaning == "procs" and value in _OF_A_MACHINE:
            _require(name, value, given)
        elif meaning in _SIZES:
            fields |= _SIZES[meaning](value)
    if "ranks" in values and values["ranks"] != _total(fields.get("procsPerNode")):
        fields |= _divide(name, values["ranks"], {**fields, **given})
    return fields


def _require(name: str, value: str, given: Mapping[str, Any]) -> None:
    """Torchrun counts the devices of the machine; here, a flag of kitctl has to give the number."""
    flag, field = _OF_A_MACHINE[value]
    if field not in given:
        raise UsageError(
            f"{name}: how many {value.upper()}s a node has is not known here", fix=f"add kitctl's {flag} N"
        )


def _divide(name: str, ranks: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The number of nodes, and of ranks per node, from the world size."""
    other = "procsPerNode" if "procsPerNode" in known and "nodes" not in known else "nodes"
    count = known.get(other, 1)
    if not ranks.isdecimal() or not isinstance(count, int) or not count or int(ranks) % count:
        given = "1 rank is" if ranks == "1" else f"{ranks} ranks are"
        what = f"{name}: {given} not the same number for each of {count} nodes"
        raise UsageError(what, fix=f"give both numbers, as in {EXAMPLE}")
    return {other: count, "procsPerNode" if other == "nodes" else "nodes": int(ranks) // count}


def _total(ranks: object) -> str:
    """The world size if each node's number of ranks is given, as in ``4,2``."""
    return str(sum(map(int, ranks.split(",")))) if isinstance(ranks, str) and "," in ranks else ""


def _count(text: str) -> int | str:
    """A number; other text is unchanged, and checked by the job's spec."""
    return int(text) if text.isdecimal() else text


def _gpus(text: str) -> dict[str, Any]:
    """``gpu:4`` or ``gpu:a100:4``; other resources are ignored."""
    found = re.fullmatch(r"gpu:(?:\w+:)?(\d+)", text)
    return {"gpusPerNode": int(found[1])} if found else {}


def _mapping(text: str) -> dict[str, Any]:
    """``ppr:4:node``; other mappings are ignored."""
    found = re.fullmatch(r"ppr:(\d+):node", text)
    return {"procsPerNode": int(found[1])} if found else {}


def _hosts(text: str) -> dict[str, Any]:
    """``a:4,b:2``: the number of hosts, and the ranks of each if all are given."""
    slots = [host.partition(":")[2] for host in text.split(",")]
    if not all(slot.isdecimal() for slot in slots):
        return {"nodes": len(slots)}
    alike = len(set(slots)) == 1
    return {"nodes": len(slots), "procsPerNode": _count(slots[0]) if alike else ",".join(slots)}


_OF_A_MACHINE: Final = {"gpu": ("--gpus-per-node", "gpusPerNode"), "cpu": ("--procs-per-node", "procsPerNode")}
_SIZES: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "nodes": lambda text: {"nodes": _count(text)},
    "procs": lambda text: {"procsPerNode": _count(text)},
    "gpus": lambda text: {"gpusPerNode": _count(text)},
    "restarts": lambda text: {"policy": {"maxRestarts": _count(text)}},
    "gres": _gpus,
    "mapping": _mapping,
    "hosts": _hosts,
}
