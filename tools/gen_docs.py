"""Write the pages that are generated from the code; ``--check`` writes nothing and fails if one is stale."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kitctl.cli import COMMANDS, cli
from kitctl.cli.command import LongCommand
from kitctl.cli.common import encode
from kitctl.output.schema import json_schema, output_schema
from tools import troubleshooting
from tools.chart_document import document_tpl
from tools.chart_kinds import kinds_table, kinds_tpl
from tools.chart_values import values_schema, values_yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CHART = ROOT / "charts" / "training-job"
WIDTH = 100
Schema = dict[str, Any]

CLI_INTRO = """\
# Command line reference

Written by `make docs` from the commands themselves: this is what `kitctl COMMAND --help` prints, or `--help-all` where
there is one.
"""
OUTPUT_INTRO = """\
# JSON output

Written by `make docs` from `kitctl/output`. With `-o json` a command prints one object with an `apiVersion` and a
`kind`; its JSON Schema is [output.schema.json](output.schema.json). Commands that stream (`kitctl status -w -o json`,
`kitctl logs -o json`) print one such object per line. Within one `apiVersion` keys are only added: ignore those that
you do not know.

Keys are camelCase and always present; what is unknown is null or empty. Times are Unix seconds, durations seconds,
sizes bytes. Messages and errors go to stderr, and exit codes are the same as without `-o json`. `kitctl render` and
`kitctl submit --dry-run` print the Kubernetes manifests themselves, as a `v1` `List`.

| Command | `kind` |
|---|---|"""
OUTPUT_EXAMPLES = """\
```sh
kitctl status digits -o json | jq .progress.loss
kitctl list -A -o json | jq -r '.items[] | select(.phase == "Failed") | .name + ": " + .reason'
```
"""
# Kind of document -> the commands that print it with `-o json`. Which one a command prints is in its code alone: a kind
# or a command that is missing here is an error.
PRINTED: Final[Mapping[str, Sequence[str]]] = {
    "Job": ("submit", "status"),
    "JobList": ("list",),
    "LogLine": ("logs",),
    "EventList": ("events",),
    "Goodput": ("goodput",),
    "GoodputList": ("goodput -A",),
    "SeriesList": ("plot",),
    "Why": ("why",),
    "Diff": ("diff",),
    "DoctorReport": ("doctor",),
    "StackReport": ("stacks",),
    "UsageReport": ("top",),
    "DrillReport": ("drill",),
    "SnapshotList": ("snapshots list", "snapshots verify"),
    "Snapshot": ("snapshots show",),
    "AuditReport": ("audit",),
    "Version": ("version",),
}
PER_LINE: Final = {"LogLine"}  # one object a line, without an option that asks for it
MANIFESTS: Final = {"render"}  # prints the objects of Kubernetes themselves
JOB_FILE_INTRO = """\
# The job file

Written by `make docs` from `trainer/kitjob/job_keys.py` and `sections.py`. A job file is YAML with these keys; flags
win over it, key by key. All keys have defaults, and an unknown key is an error that names the nearest known one. For
editors, `kitctl schema` prints the JSON Schema ([job.schema.json](job.schema.json)):
`# yaml-language-server: $schema=job.schema.json`.

Text that a YAML reader could take for something else (`yes`, `0644`, `1e-3`) has to be quoted where text is meant.

```yaml
name: digits
nodes: 3
command: ["-m", "kittrain.workloads.digits"]
args: ["--epochs", "5"]
env:
  LEARNING_RATE: "1e-3"
```
"""


def main(*, check: bool) -> int:
    """Write the pages, or report which of them are stale."""
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'is stale: make docs' if check else 'written'}")
    return 1 if check and stale else 0


def pages() -> dict[Path, str]:
    """Every generated page."""
    schema, output = json_schema(), output_schema()
    return {
        DOCS / "cli.md": "\n".join([CLI_INTRO, *_commands()]),
        DOCS / "job-file.md": "\n".join([JOB_FILE_INTRO, *_sections(schema)]),
        DOCS / "job.schema.json": encode(schema) + "\n",
        DOCS / "json-output.md": "\n".join([OUTPUT_INTRO, *_printed(output), OUTPUT_EXAMPLES, *_objects(output)]),
        DOCS / "output.schema.json": encode(output) + "\n",
        CHART / "values.schema.json": encode(values_schema()) + "\n",
        CHART / "values.yaml": values_yaml(),
        CHART / "templates" / "_kinds.tpl": kinds_tpl(),
        CHART / "templates" / "_document.tpl": document_tpl(),
        DOCS / "troubleshooting.md": troubleshooting.page(),
        DOCS / "kinds.md": _with_block((DOCS / "kinds.md").read_text("utf-8"), "kinds", kinds_table()),
    }


def _with_block(page: str, name: str, block: str) -> str:
    """A page whose part between ``<!-- NAME -->`` and ``<!-- end -->`` is generated."""
    before, mark, rest = page.partition(f"<!-- {name}: written by `make docs` -->\n")
    _, end, after = rest.partition("<!-- end -->")
    assert end, f"the page has no place for {name}"
    return before + mark + block + "\n" + end + after


def _commands() -> Iterator[str]:
    top = _context(cli, "kitctl")
    yield f"```text\n{cli.get_help(top)}\n```\n"
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command, name
        yield from _help(command, _context(command, name, top))


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    """A command's section, and one for each of its own."""
    text = command.get_help_all(context) if isinstance(command, LongCommand) else command.get_help(context)
    yield f"## {context.command_path}\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from _help(part, _context(part, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _sections(schema: Schema) -> Iterator[str]:
    """The top level first, then every section in the order in which it is first mentioned."""
    waiting = [_name(schema)]
    for name in waiting:
        section = schema["$defs"][name]
        title = "Top level" if name == waiting[0] else f"{name[0].lower()}{name[1:]}"
        rows = [_row(key, field) for key, field in section["properties"].items()]
        yield f"## {title}\n\n{section.get('description', '')}\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|"
        yield "\n".join(rows) + "\n"
        _await(waiting, section)


def _printed(schema: Schema) -> Iterator[str]:
    """The rows of the commands that print each kind."""
    known = {_name(kind) for kind in schema["anyOf"]}
    assert known == PRINTED.keys(), f"PRINTED and the kinds differ: {sorted(known ^ PRINTED.keys())}"
    listed = {command.partition(" -")[0] for commands in PRINTED.values() for command in commands}
    able = set(_with_json(cli, _context(cli, "kitctl"))) - MANIFESTS
    assert able == listed, f"PRINTED and the commands with -o json differ: {sorted(able ^ listed)}"
    for kind, commands in PRINTED.items():
        streamed = ", one per line" if kind in PER_LINE else ""
        yield f"| {', '.join(f'`kitctl {one}`' for one in commands)} | [{kind}](#{kind.lower()}){streamed} |"
    yield ""


def _with_json(command: click.Command, context: click.Context) -> Iterator[str]:
    """The commands below this one, itself included, that have `-o json`, without the name of the program."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part, name
            yield from _with_json(part, _context(part, name, context))
    elif any("json" in (*getattr(one.type, "choices", ()), *(one.metavar or "").split("|")) for one in command.params):
        yield context.command_path.partition(" ")[2]


def _objects(schema: Schema) -> Iterator[str]:
    """Every kind, then their parts in the order in which they are first mentioned."""
    waiting = [_name(kind) for kind in schema["anyOf"]]
    for name in waiting:
        section = schema["$defs"][name]
        rows = [f"| {_cells(key, _type(field), _meaning(field))} |" for key, field in section["properties"].items()]
        yield f"## {name}\n\n{section.get('description', '')}\n\n| Key | Type | Meaning |\n|---|---|---|"
        yield "\n".join(rows) + "\n"
        _await(waiting, section)


def _await(waiting: list[str], section: Schema) -> None:
    """Append the sections that a section leads to, each once, also where several of its fields lead there."""
    for ref in (ref for field in section["properties"].values() for ref in _refs(field)):
        if ref not in waiting:
            waiting.append(ref)


def _row(key: str, field: Schema) -> str:
    default = f"`{json.dumps(field['default'])}`" if "default" in field else "required"
    return f"| {_cells(key, _type(field), '' if any(_refs(field)) else default, _meaning(field))} |"


def _cells(key: str, *cells: str) -> str:
    return " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in (f"`{key}`", *cells))


def _meaning(field: Schema) -> str:
    return str(field.get("description", "")).replace("``", "`")


def _type(field: Schema) -> str:
    if "$ref" in field:
        name = _name(field)
        return f"[{name}](#{name.lower()})"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object":
        return f"map to {_type(field.get('additionalProperties', {}))}"
    return str(field.get("type", "any"))


def _refs(field: Schema) -> Iterator[str]:
    """The sections that a field leads to."""
    if "$ref" in field:
        yield _name(field)
    for part in (*field.get("anyOf", ()), *(field[key] for key in ("items", "additionalProperties") if key in field)):
        if isinstance(part, dict):
            yield from _refs(part)


def _name(field: Schema) -> str:
    return str(field["$ref"]).rpartition("/")[2]


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    sys.exit(main(check="--check" in sys.argv[1:]))
