"""How many nodes, ranks and GPUs the options of another launcher ask for. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kitctl.errors import UsageError

EXAMPLE: Final = "kitctl submit --nodes 2 --procs-per-node 4 -- train.py --epochs 5"


def size(name: str, asked: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes, ranks and GPUs of each, and restarts, as fields of a job.

    Args:
        name: of the launcher.
        asked: values by the meaning of their option.
        given: fields that kitctl's own flags set.

    Raises:
        UsageError: the numbers do not go together, or depend on a machine.
    """
    fields: dict[str, Any] = {}
    for meaning, value in asked.items():
        if meaning == "procs" and value in _OF_A_MACHINE:
            _require(name, value, given)
        elif meaning in _SIZES:
            fields |= _SIZES[meaning](value)
    if "ranks" in asked and asked["ranks"] != _total(fields.get("procsPerNode")):
        fields |= _divide(name, asked["ranks"], {**fields, **given})
    return fields


def _require(name: str, value: str, given: Mapping[str, Any]) -> None:
    """Torchrun counts what the machine has; here, a flag of kitctl has to say how many."""
    flag, field = _OF_A_MACHINE[value]
    if field not in given:
        raise UsageError(
            f"{name}: how many {value.upper()}s a node has is not known here", fix=f"add kitctl's {flag} N"
        )


def _divide(name: str, ranks: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes and ranks of each from the number of all ranks."""
    other = "procsPerNode" if "procsPerNode" in known and "nodes" not in known else "nodes"
    count = known.get(other, 1)
    if not ranks.isdecimal() or not isinstance(count, int) or not count or int(ranks) % count:
        what = f"{name}: {ranks} ranks are not the same number for each of {count} nodes"
        raise UsageError(what, fix=f"give both numbers, as in {EXAMPLE}")
    return {other: count, "procsPerNode" if other == "nodes" else "nodes": int(ranks) // count}


def _total(ranks: object) -> str:
    """The number of all ranks where each node's is given, as in ``4,2``."""
    return str(sum(map(int, ranks.split(",")))) if isinstance(ranks, str) and "," in ranks else ""


def _count(text: str) -> int | str:
    """A number; anything else stays text, which the job's spec accepts or explains."""
    return int(text) if text.isdecimal() else text


def _gpus(text: str) -> dict[str, Any]:
    """``gpu:4`` or ``gpu:a100:4``; other resources are left out."""
    found = re.fullmatch(r"gpu:(?:\w+:)?(\d+)", text)
    return {"gpusPerNode": int(found[1])} if found else {}


def _mapping(text: str) -> dict[str, Any]:
    """``ppr:4:node``; other mappings are left out."""
    found = re.fullmatch(r"ppr:(\d+):node", text)
    return {"procsPerNode": int(found[1])} if found else {}


def _hosts(text: str) -> dict[str, Any]:
    """``a:4,b:2``: as many nodes, and the ranks of each where all are given."""
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
