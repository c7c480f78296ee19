"""Arguments and values reach the ranks unchanged: no shell, YAML parser or template alters them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

WORDS = [
    *(
        "",
        " ",
        "two words",
        " leading",
        "trailing ",
        "'single'",
        '"double"',
        "a'b\"c",
        "`id`",
        "$(id)",
        "$HOME",
        "$$",
        "${A}",
    ),
    *(
        "$(KIT_NAME)",
        "<in",
        ">out",
        "&",
        "a&b",
        "|",
        ";",
        "a;b",
        "!",
        "#",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "~",
        "\\",
        "\\n",
        "%s",
    ),
    *("-", "--", "-m", "--nodes=9", "-e", "A=B", "--help", "-rf", "line\nbreak", "\ttab", "\r\n", "\x1b[2J", "{{ x }}"),
    *("häßlich", "数字", "😀", "\u202e", "\u00a0", "yes", "1e-3", "0644", "2:4", "null", "x" * 100_000),
]
SCRIPT = """
import json, os, pathlib, sys
received = {"args": sys.argv[1:], "env": {name: text for name, text in os.environ.items() if name.startswith("WORD_")}}
pathlib.Path(f"rank-{os.environ['RANK']}.json").write_text(json.dumps(received))
"""


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_arguments_and_values_reach_every_rank_unchanged(kit: Kit) -> None:
    script = kit.folder / "it's a script.py"
    script.write_text(SCRIPT)
    variables = {f"WORD_{number}": word for number, word in enumerate(WORDS)}
    options = [part for name, word in variables.items() for part in ("-e", f"{name}={word}")]
    kit.run("submit", "--name", "words", "--set", "procsPerNode=2", *options, "--wait", script.name, *WORDS)
    for rank in range(2):
        received = json.loads((kit.folder / f"rank-{rank}.json").read_text())
        assert received["args"] == WORDS
        assert received["env"] == variables
