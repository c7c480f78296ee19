"""All YAML readers read the same values from rendered YAML as from the JSON that is sent."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kitctl.base import names
from kitctl.base.yamlstrict import is_ambiguous
from kitctl.code.code_tree import Sources
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec

# Strings that change without quotes, and strings that are hard to quote.
TRAPS = [
    *("1e-3", "3E-4", "1e3", "yes", "no", "on", "y", "Y", "n", "true", "null", "~", "", "0644", "08", "0x1f", "0o17"),
    *("1_000", "12:30:45", "2:4", ".inf", ".nan", "2001-01-01", "=", "<<", "- a", "? a", "a: b", "a #b", "#", "@", "`"),
    *("{{ x }}", "{% if x %}", "$(HOME)", "$$", "${HOME}", "'", '"', "\\", "\\n", "%", "&a", "*a", "!x", "|", ">"),
    *("two\nlines\n", "\n", "tab\tbed", " leading", "trailing ", "  ", "\r\n", "\x07bell", "\x1b[0m", "\x7f"),
    *("häßlich", "😀", "\u2028", "\u2029", "\u0085", "\ufeffbom", "\u00a0", "日本語", "x" * 5000, "word " * 400),
]


def traps() -> list[dict[str, Any]]:
    env = {f"V{number}": text for number, text in enumerate(TRAPS)}
    spec = JobSpec(name="job", command=("train.py",), args=tuple(TRAPS), env=env)
    return render.manifests(
        spec, Sources(files={"train.py": "\n".join(TRAPS), "y": "yes", "0x1f": "1e-3", "null": "~", "1e3": "08"})
    )


def test_every_string_is_quoted() -> None:
    """Plain scalars are numbers, booleans or unambiguous text in all versions of YAML."""
    events = list(yaml.parse(render.to_yaml(traps())))
    plain = [event.value for event in events if isinstance(event, yaml.ScalarEvent) and event.style is None]
    strings = {text for text in plain if not re.fullmatch(r"[A-Za-z][-A-Za-z0-9_./]*|[0-9]|[1-9][0-9]*", text)}
    assert not strings
    assert {text for text in plain if is_ambiguous(text) and not text.isdecimal()} <= {"true", "false"}
    assert not [event for event in events if getattr(event, "anchor", None)]


def test_yaml_read_back_is_the_json() -> None:
    assert list(yaml.safe_load_all(render.to_yaml(traps()))) == json.loads(render.to_json(traps()))["items"]


def test_kubectl_reads_the_yaml_as_the_json(tmp_path: Path) -> None:
    objects = [thing for thing in traps() if thing["kind"] in {"ConfigMap", "Job"}]
    for number, thing in enumerate(objects):
        as_yaml, as_json = tmp_path / f"{number}.yaml", tmp_path / f"{number}.json"
        as_yaml.write_text(render.to_yaml([thing]), encoding="utf-8")
        as_json.write_text(json.dumps(thing), encoding="utf-8")
        read = [kubectl_reads(path) for path in (as_yaml, as_json)]
        assert (
            read[0] == read[1] == {**thing, "metadata": {**thing["metadata"], "labels": read[0]["metadata"]["labels"]}}
        )


def kubectl_reads(path: Path) -> dict[str, Any]:
    """A label has to be set, so one is set that is there already; ``--local`` asks no server."""
    label = f"{names.LABEL_NAME}={names.APP_NAME}"
    command = ["kubectl", "label", "--local", "--dry-run=client", "-o", "json", "-f", str(path), "--overwrite", label]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    read: dict[str, Any] = json.loads(done.stdout)
    return read
