"""A script that declares an argument for its local rank gets it once, in the spelling that it declares."""

from __future__ import annotations

import pytest

from kitctl.input.local_rank import MACRO, with_local_rank

DASH = "p.add_argument('--local-rank', type=int)"
UNDERSCORE = 'parser.add_argument("--local_rank", default=0, type=int)'


@pytest.mark.parametrize(
    ("source", "args", "expected"),
    [
        (DASH, ["--x"], [f"--local-rank={MACRO}", "--x"]),
        (UNDERSCORE, [], [f"--local_rank={MACRO}"]),
        (f"{UNDERSCORE}\n{DASH}", [], [f"--local-rank={MACRO}"]),
        ('p.add_argument("--local_rank", "--local-rank")', [], [f"--local-rank={MACRO}"]),
        (UNDERSCORE, ["--local_rank=3"], ["--local_rank=3"]),
        (UNDERSCORE, ["--local-rank", "3"], ["--local-rank", "3"]),
        ("# add_argument('--local_rank')", ["1"], ["1"]),
        ("print('--local_rank')", [], []),
        ("this is no Python", [], []),
        ("\0", [], []),
        ("", [], []),
    ],
)
def test_the_argument_of_the_script(source: str, args: list[str], expected: list[str]) -> None:
    assert with_local_rank(args, source) == expected


def test_a_launcher_adds_its_own_spelling_if_the_script_declares_none() -> None:
    assert with_local_rank(["1"], "", "--local-rank") == [f"--local-rank={MACRO}", "1"]
    assert with_local_rank(["1"], UNDERSCORE, "--local-rank") == [f"--local_rank={MACRO}", "1"]
