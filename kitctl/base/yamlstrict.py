"""YAML that every reader parses the same: a strict reader for job files, and a writer that quotes every string.

kubectl and Helm read YAML 1.1, others 1.2, and they disagree on ``yes``, ``0644``, ``1e-3``, ``08`` and ``2:4``. So an
ambiguous unquoted scalar is refused in a text field, and never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from kitctl.base.errors import Problem, UsageError
from kitctl.base.field_type import FieldType, join
from kitctl.base.yamlbounds import Bounds, problem_of

# The C parser is ten times as fast; PyYAML's wheels have it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_AMBIGUOUS = re.compile(
    r"""
      | ~ | null | y | yes | n | no | true | false | on | off | = | <<   # null, booleans, YAML 1.1's special scalars
      | [-+]? 0 ( b [01_]+ | o [0-7_]+ | x [0-9a-f_]+ )                  # 0b1, 0o17, 0x1f
      | [-+]? [0-9] [0-9_]* ( : [0-5]? [0-9] )+ ( \. [0-9_]* )?          # 12:30:45 and 2:4 are base 60
      | [-+]? ( \. [0-9_]+ | [0-9] [0-9_]* ( \. [0-9_]* )? ) ( e [-+]? [0-9]+ )?
      | [-+]? \. ( inf | nan )
      | [0-9]{4} - [0-9]{1,2} - [0-9]{1,2} ( [t\ ] .* )?                 # dates and times
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")


_PLAIN_KEY = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*")
_SURROGATES = re.compile(  # after escaped backslashes
    r"(?<!\\)((?:\\\\)*)\\u(?P<high>d[89ab][0-9a-f]{2})\\u(?P<low>d[c-f][0-9a-f]{2})", re.IGNORECASE
)
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = FieldType(str)


def is_ambiguous(scalar: str) -> bool:
    """Whether some YAML reader takes this unquoted scalar for something other than text."""
    return _AMBIGUOUS.fullmatch(scalar) is not None


def read(text: str, source: str, field_type: FieldType) -> tuple[dict[str, Any], list[Problem]]:
    """Parse a mapping; return it with the problems of its keys and scalars. With problems it is empty.

    Raises:
        UsageError: not YAML, or not one mapping; names ``source`` and the line.
    """
    fix = "make it a YAML (or JSON) mapping, each key once"
    try:
        node = _node(_without_surrogate_pairs(text))
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{source}: not a mapping of keys to values", fix="begin it like this: nodes: 3")
        problems = list(_problems(node, field_type, ""))
        return ({} if problems else _construct(node)), problems
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{source}{line}: {problem_of(error)}", fix=fix) from error
    except ValueError as error:  # from a constructor: a number of 5,000 digits, the 99th of a month
        raise UsageError(f"{source}: {error}", fix=fix) from error


def parse(text: str) -> list[Any]:
    """The documents of a stream, without empty ones.

    Raises:
        yaml.YAMLError: not YAML, or a duplicate key.
    """
    documents = yaml.load_all(text, _UniqueLoader)
    return [document for document in documents if document is not None]


def write(documents: Iterable[Mapping[str, Any]]) -> str:
    """Documents as YAML: every string quoted and in ASCII, keys plain only where they are not ambiguous."""
    text: str = yaml.dump_all(documents, Dumper=_QuotingDumper, sort_keys=False, width=2**31 - 1, explicit_start=True)
    return text


def quote(value: Any, **_options: Any) -> str:
    """A value as JSON that is also YAML: ASCII, without surrogate pairs, which YAML reads as two characters."""
    return _SURROGATES.sub(_code_point, json.dumps(value))


def _node(text: str) -> yaml.Node | None:
    """The one document of a text, after its bounds are checked."""
    bounds = Bounds()
    for event in yaml.parse(text, _UniqueLoader):
        bounds.check(event)
    node: yaml.Node | None = yaml.compose(text, _UniqueLoader)
    return node


def _construct(node: yaml.Node) -> dict[str, Any]:
    loader = _UniqueLoader("")
    try:
        mapping: dict[str, Any] = loader.construct_document(node)
    finally:
        loader.dispose()
    return mapping


def _without_surrogate_pairs(text: str) -> str:
    """JSON with its surrogate pairs as YAML escapes; other text unchanged."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _SURROGATES.sub(_code_point, text)


def _code_point(pair: re.Match[str]) -> str:
    high, low = int(pair["high"], 16), int(pair["low"], 16)
    return f"{pair[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


class _UniqueLoader(_Loader):  # type: ignore[misc]  # the base is chosen at import time
    """A safe loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's
        """Refuse keys that PyYAML would silently overwrite."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if (name := (key.tag, str(key.value))) in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value}", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _QuotingDumper(_Dumper):  # type: ignore[misc]  # the base is chosen at import time
    """Writes every string in double quotes, and no aliases, since not every reader follows them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's
        """Write no alias."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A string, quoted."""
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", data, style='"')
        return node

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:  # noqa: FBT001 - PyYAML's
        """A mapping, with plain keys where they are safe."""
        node: yaml.MappingNode = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            if _PLAIN_KEY.fullmatch(key.value) and not is_ambiguous(key.value):
                key.style = None
        return node


_QuotingDumper.add_representer(str, _QuotingDumper.represent_str)


def _problems(node: yaml.Node, field_type: FieldType, path: str) -> Iterator[Problem]:
    """Walk only as deep as the type goes."""
    if isinstance(node, yaml.MappingNode) and (field_type.fields or field_type.values):
        yield from _keys(node, field_type, path)
    elif isinstance(node, yaml.SequenceNode) and field_type.items:
        for number, item in enumerate(node.value):
            yield from _problems(item, field_type.items, f"{path}[{number}]")
    elif isinstance(node, yaml.ScalarNode):
        yield from _scalar(node, field_type, path)


def _keys(node: yaml.MappingNode, field_type: FieldType, path: str) -> Iterator[Problem]:
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        field = join(path, name)
        if key.tag == _MERGE:
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _problems(merged, field_type, path)
        elif child := field_type.child(name):
            yield from _problems(key, _TEXT, field) if field_type.values else ()
            yield from _problems(value, child, field)
        else:
            yield field_type.unknown(field, name, _line(key))


def _scalar(node: yaml.ScalarNode, field_type: FieldType, path: str) -> Iterator[Problem]:
    text = str(node.value)
    absent = node.tag.endswith(":null") and type(None) in field_type.scalar_types
    if (
        node.style
        or absent
        or not is_ambiguous(text)
        or (int in field_type.scalar_types and _PLAIN_NUMBER.fullmatch(text))
    ):
        return
    if bool in field_type.scalar_types and text in {"true", "false"}:
        return
    if str in field_type.scalar_types:
        what = f"{text or 'nothing'}{_line(node)} is ambiguous in YAML"
        yield Problem.of(path, what, f"quote it: {json.dumps(text, ensure_ascii=False)}")
    elif int in field_type.scalar_types:
        what = f"{text or 'nothing'}{_line(node)} is an ambiguous number in YAML"
        yield Problem.of(path, what, "use decimal digits only")


def _line(node: yaml.Node) -> str:
    return f" (line {node.start_mark.line + 1})"
