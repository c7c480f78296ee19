"""The grammar of Kubernetes' names according to its documentation, independent of kitctl's patterns."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Any

LOWER = set(string.ascii_lowercase + string.digits)
LETTERS = set(string.ascii_letters + string.digits)


def is_label(name: str) -> bool:
    """RFC 1123 label."""
    return 0 < len(name) <= 63 and set(name) <= LOWER | {"-"} and {name[0], name[-1]} <= LOWER


def is_subdomain(name: str) -> bool:
    """RFC 1123 subdomain; Kubernetes does not limit the length of its parts."""
    parts = name.split(".")
    return len(name) <= 253 and all(
        part and set(part) <= LOWER | {"-"} and {part[0], part[-1]} <= LOWER for part in parts
    )


def is_label_value(value: str) -> bool:
    """A label's value, which may be empty."""
    return not value or (len(value) <= 63 and set(value) <= LETTERS | set("-_.") and {value[0], value[-1]} <= LETTERS)


def is_qualified(key: str) -> bool:
    """The key of a label, a taint or a resource."""
    prefix, slash, name = key.rpartition("/")
    return bool(name) and is_label_value(name) and (is_subdomain(prefix) if slash else True)


def violations(thing: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Where an object or a part of it violates the grammar."""
    for key, value in thing.items():
        here = f"{path}.{key}"
        if key in {"labels", "matchLabels", "nodeSelector"} or (key == "selector" and "matchLabels" not in value):
            yield from (f"{here}.{label}" for label in value if not is_qualified(label))
            yield from (f"{here}.{label}={text}" for label, text in value.items() if not is_label_value(text))
        elif key in {"requests", "limits"}:
            yield from (f"{here}.{name}" for name in value if not is_qualified(name))
        elif key in _NAMES and isinstance(value, str) and not _NAMES[key](value):
            yield f"{here}={value}"
        elif isinstance(value, Mapping):
            yield from violations(value, here)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from violations(item, f"{here}[{number}]") if isinstance(item, Mapping) else ()


_NAMES = {
    "namespace": is_label,
    "claimName": is_subdomain,
    "secretName": is_subdomain,
    "priorityClassName": is_subdomain,
    "serviceAccountName": is_subdomain,
    "storageClassName": is_subdomain,
    "schedulerName": is_subdomain,
}
