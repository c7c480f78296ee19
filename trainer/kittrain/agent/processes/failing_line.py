"""Says what the names had in the script's line that raised an error: numbers, sizes and keys, never a text.

A line alone does not show which of its values is None, empty, or of another shape. Nothing of the script is called but
what the line has called itself: ``len()``.
"""

from __future__ import annotations

import ast
import linecache
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from types import FrameType, TracebackType
from typing import Any, Final

from kittrain.system.texts import LIBRARY

MOST: Final = 4  # values
KEYS: Final = 6  # of a mapping
NUMBERS: Final = 6  # of a tuple
DIGITS: Final = 24  # of a number
LENGTH: Final = 160  # characters in all
_NAME: Final = re.compile(r"[\w.-]{1,24}")  # of a key that is shown
_EMPTY: Final = re.compile(r".* = (?:None|0|0\.0|-?inf|nan|\w+ of 0|\w+ \[[^\]]*\b0\b[^\]]*\].*)")  # told first


def values(error: BaseException) -> str:
    """``len(loader) = 0, total = 3.5``; empty if nothing of that kind is in the line."""
    try:
        found = _innermost(error.__traceback__)
        told = [] if found is None else [*dict.fromkeys(_told(*found, getattr(error, "name", None) or _key(error)))]
    except Exception:  # noqa: BLE001  the script's own objects: must not hide its error
        return ""
    counted = {text.partition(")")[0].removeprefix("len(") for text in told if text.startswith("len(")}
    once = [text for text in told if text.partition(" = ")[0] not in counted]
    return ", ".join(sorted(once, key=lambda text: not _EMPTY.fullmatch(text))[:MOST])[:LENGTH]


def _innermost(trace: TracebackType | None) -> tuple[ast.expr, FrameType] | None:
    """The innermost expression of the script that raised the error, and its frame."""
    found = None
    while trace is not None:
        if not LIBRARY.search(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    return None if found is None else (_expression(found), found.tb_frame)


def _expression(trace: TracebackType) -> ast.expr:
    code = trace.tb_frame.f_code
    first, last, begin, end = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
    if first is None or last is None or begin is None or end is None:
        raise ValueError("its place is not known")
    linecache.checkcache(code.co_filename)
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return ast.parse(f"({b''.join(lines).decode()})", mode="eval").body


def _key(error: BaseException) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else ""


def _told(node: ast.AST, frame: FrameType, wanted: str) -> Iterator[str]:
    """``name = value`` of each name in a line, with its attributes and items as far as they are known."""
    match node:
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return  # its names are its own
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as one]):
            yield f"{ast.unparse(node)} = {len(_value(one, frame))}"
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield from _of_name(node, frame, wanted)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _told(child, frame, wanted)


def _of_name(node: ast.Name | ast.Attribute | ast.Subscript, frame: FrameType, wanted: str) -> Iterator[str]:
    """Of an attribute or item that is not there, what it was asked of."""
    try:
        shown = _shown(_value(node, frame), wanted)
    except (LookupError, TypeError):
        shown = ""
        if not isinstance(node, ast.Name):
            yield from _told(node.value, frame, wanted)
    if shown:
        yield f"{ast.unparse(node)} = {shown}"
    if isinstance(node, ast.Subscript):
        yield from _told(node.slice, frame, wanted)


def _value(expression: ast.expr, frame: FrameType) -> Any:
    """What an expression is, without a call of the script's code.

    Raises:
        LookupError: that is not known, or there is none.
    """
    match expression:
        case ast.Name(id=name):
            return frame.f_locals[name] if name in frame.f_locals else frame.f_globals[name]
        case ast.Attribute(value=owner, attr=name):
            return _attributes(_value(owner, frame))[name]
        case ast.Subscript(value=owner, slice=ast.Constant(value=key)):
            held = _value(owner, frame)
            if type(held) in {dict, list, tuple}:
                return held[key]
    raise LookupError(ast.unparse(expression))


def _attributes(value: Any) -> Mapping[str, Any]:
    try:
        own: Mapping[str, Any] = vars(value)
    except TypeError:
        own = {}
    return own


def _shown(value: Any, wanted: str) -> str:
    """A value without its texts; empty if it says nothing."""
    match value:
        case None | bool() | int() | float():
            return repr(value)[:DIGITS]
        case Namespace():
            return f"Namespace of {_keys(vars(value), wanted)}"
        case dict() if value:
            return f"dict of {len(value)}: {_keys(value, wanted)}"
        case list() | tuple() if 0 < len(value) <= NUMBERS and all(isinstance(one, int | float) for one in value):
            return repr([*value])[: DIGITS * 2]
        case str() | bytes() | dict() | list() | tuple() | set() | frozenset() | range():
            return f"{type(value).__name__} of {len(value)}"
    return _array(value)


def _array(value: Any) -> str:
    """``Tensor [32, 512] float32 cuda:0``; empty if it is none of torch or numpy."""
    kind = type(value)
    if kind.__module__.partition(".")[0] not in {"torch", "numpy"} or not hasattr(value, "dtype"):
        return ""
    device = f" {value.device}" if getattr(value, "is_cuda", False) else ""
    return f"{kind.__name__} {[*value.shape]} {str(value.dtype).removeprefix('torch.')}{device}"


def _keys(held: Mapping[Any, Any], wanted: str) -> str:
    """Some keys that are names or numbers, those that look like the wanted one first."""
    keys = [str(key) for key in islice(held, 1000) if isinstance(key, int | str) and _NAME.fullmatch(str(key))]
    shown = [*dict.fromkeys([*get_close_matches(wanted, keys), *keys])][:KEYS]
    return ", ".join([*shown, *["..."] * (len(held) > len(shown))])
