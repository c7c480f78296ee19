"""YAML that means the same to every reader: a strict reader for job files, and a writer that quotes every string.

kubectl and Helm read YAML 1.1, others 1.2, and they disagree on ``yes``, ``0644``, ``1e-3``, ``08`` and ``2:4``. So an
unquoted scalar that any of them could take for something else is refused where text belongs, and never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from kitctl.errors import Problem, UsageError
from kitctl.shape import Shape, join
from kitctl.yamlbounds import Bounds

# The C parser is ten times as fast, and there wherever PyYAML came as a wheel.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_DOUBTFUL = re.compile(
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
_SURROGATES = re.compile(  # behind backslashes that are meant as such
    r"(?<!\\)((?:\\\\)*)\\u(?P<high>d[89ab][0-9a-f]{2})\\u(?P<low>d[c-f][0-9a-f]{2})", re.IGNORECASE
)
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = Shape(str)


def doubtful(scalar: str) -> bool:
    """Whether some YAML reader takes this unquoted scalar for something else than text."""
    return _DOUBTFUL.fullmatch(scalar) is not None


def read(text: str, source: str, shape: Shape) -> tuple[dict[str, Any], list[Problem]]:
    """The mapping that ``text`` is, and what is wrong with its keys and scalars; with problems it is empty.

    Raises:
        UsageError: it is not YAML, or not one mapping; names ``source`` and the line.
    """
    fix = "make it a YAML (or JSON) mapping, each key once"
    try:
        node = _node(_without_pairs(text))
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{source}: not a mapping of keys to values", fix="begin it like this: nodes: 3")
        problems = list(_problems(node, shape, ""))
        return ({} if problems else _constructed(node)), problems
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UsageError(f"{source}{line}: {what}", fix=fix) from error
    except ValueError as error:  # of a constructor: a number of 5,000 digits, the 99th of a month
        raise UsageError(f"{source}: {error}", fix=fix) from error


def parse(text: str) -> list[Any]:
    """The documents of a stream, empty ones left out.

    Raises:
        yaml.YAMLError: it is no YAML, or has a key twice.
    """
    documents = yaml.load_all(text, _UniqueLoader)
    return [document for document in documents if document is not None]


def write(documents: Iterable[Mapping[str, Any]]) -> str:
    """Documents as YAML: every string quoted and in ASCII, keys plain only where no reader can doubt them."""
    text: str = yaml.dump_all(documents, Dumper=_QuotingDumper, sort_keys=False, width=2**31 - 1, explicit_start=True)
    return text


def quote(value: Any, **_options: Any) -> str:
    """A value as JSON that is YAML too: ASCII, and no surrogate pairs, which YAML takes for two characters."""
    return _SURROGATES.sub(_code_point, json.dumps(value))


def _node(text: str) -> yaml.Node | None:
    """The one document of a text, once it is known that reading it comes to an end."""
    bounds = Bounds()
    for event in yaml.parse(text, _UniqueLoader):
        bounds.take(event)
    node: yaml.Node | None = yaml.compose(text, _UniqueLoader)
    return node


def _constructed(node: yaml.Node) -> dict[str, Any]:
    loader = _UniqueLoader("")
    try:
        tree: dict[str, Any] = loader.construct_document(node)
    finally:
        loader.dispose()
    return tree


def _without_pairs(text: str) -> str:
    """JSON with its surrogate pairs as YAML writes them; any other text as it is."""
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


class _UniqueLoader(_Loader):  # type: ignore[misc]  # the base is chosen when the module is loaded
    """A safe loader to which a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's
        """Refuse what PyYAML would silently overwrite."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if (name := (key.tag, str(key.value))) in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} is given twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _QuotingDumper(_Dumper):  # type: ignore[misc]  # likewise
    """Every string in double quotes; equal parts written out, since not every reader follows aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's
        """Write no alias."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A string, quoted."""
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", data, style='"')
        return node

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:  # noqa: FBT001 - PyYAML's
        """A mapping with plain keys where they are safe."""
        node: yaml.MappingNode = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            if _PLAIN_KEY.fullmatch(key.value) and not doubtful(key.value):
                key.style = None
        return node


_QuotingDumper.add_representer(str, _QuotingDumper.represent_str)


def _problems(node: yaml.Node, shape: Shape, path: str) -> Iterator[Problem]:
    """Walk only as deep as the shape goes."""
    if isinstance(node, yaml.MappingNode) and (shape.fields or shape.values):
        yield from _keys(node, shape, path)
    elif isinstance(node, yaml.SequenceNode) and shape.items:
        for number, item in enumerate(node.value):
            yield from _problems(item, shape.items, f"{path}[{number}]")
    elif isinstance(node, yaml.ScalarNode):
        yield from _scalar(node, shape, path)


def _keys(node: yaml.MappingNode, shape: Shape, path: str) -> Iterator[Problem]:
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        field = join(path, name)
        if key.tag == _MERGE:
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _problems(merged, shape, path)
        elif child := shape.child(name):
            yield from _problems(key, _TEXT, field) if shape.values else ()
            yield from _problems(value, child, field)
        else:
            yield shape.unknown(field, name, _line(key))


def _scalar(node: yaml.ScalarNode, shape: Shape, path: str) -> Iterator[Problem]:
    text = str(node.value)
    absent = node.tag.endswith(":null") and type(None) in shape.holds
    if node.style or absent or not doubtful(text) or (int in shape.holds and _PLAIN_NUMBER.fullmatch(text)):
        return
    if bool in shape.holds and text in {"true", "false"}:
        return
    if str in shape.holds:
        what = f"{text or 'nothing'}{_line(node)} is not text to every YAML reader"
        yield Problem.of(path, what, f"quote it: {json.dumps(text, ensure_ascii=False)}")
    elif int in shape.holds:
        what = f"{text or 'nothing'}{_line(node)} is not the same number to every YAML reader"
        yield Problem.of(path, what, "write decimal digits alone")


def _line(node: yaml.Node) -> str:
    return f" (line {node.start_mark.line + 1})"
