"""Control characters are escaped, and nothing else changes."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.base import printable

CLEAR, TITLE = "\x1b[2J\x1b[H", "\x1b]0;mine\x07"


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        (CLEAR + TITLE, r"\x1b[2J\x1b[H\x1b]0;mine\x07"),
        ("a\nfix: rm", r"a\nfix: rm"),
        ("a\rb\tc", r"a\rb\tc"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("exe.\u202etxt", r"exe.\u202etxt"),
        ("\u2066a\u2069\u200f", r"\u2066a\u2069\u200f"),
        ("a\u200bb\ufeff\u2028", r"a\u200bb\ufeff\u2028"),
        ("\U000e0041", r"\U000e0041"),
        ("\udcff.py", r"\udcff.py"),
    ],
)
def test_control_characters_are_shown_as_escapes(given_: str, shown: str) -> None:
    assert printable.line(given_) == shown


@pytest.mark.parametrize(
    "plain", ["ü 数字 مرحبا עברית", "👩\u200d🔬 🏳️\u200d🌈", "क\u200cष", "[red]no markup[/red]", r"C:\x"]
)
def test_letters_of_any_script_are_left_alone(plain: str) -> None:
    assert printable.line(plain) == printable.text(plain) == printable.log(plain) == plain


def test_a_text_keeps_line_feeds_and_tabs() -> None:
    assert printable.text("a\n\tb\r\x1b[0m") == "a\n\tb\\r\\x1b[0m"


def test_a_log_line_keeps_colours_and_carriage_returns_and_resets_colours_at_its_end() -> None:
    assert printable.log("\r50 %\r100 %") == "\r50 %\r100 %"
    assert printable.log("\x1b[1;31mred" + CLEAR) == "\x1b[1;31mred\\x1b[2J\\x1b[H\x1b[0m"
    assert printable.log(TITLE + "\x1b[38:5:1m") == "\\x1b]0;mine\\x07\x1b[38:5:1m\x1b[0m"
    assert printable.log("a\x08b\n") == r"a\x08b\n"


@pytest.mark.wide
@given(st.text(st.characters(codec="utf-8")))
def test_json_is_equal_and_without_control_codes(text: str) -> None:
    safe = printable.json(json.dumps([text], ensure_ascii=False, indent=2))
    assert json.loads(safe) == [text]
    assert printable.text(safe) == safe


@given(st.text())
def test_escaping_leaves_no_control_character_and_is_idempotent(text: str) -> None:
    shown = printable.line(text)
    assert not {"Cc", "Zl", "Zp", "Cs"} & {unicodedata.category(letter) for letter in shown}
    assert printable.line(shown) == shown
    shown.encode()
