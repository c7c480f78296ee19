"""What is left of what a rank printed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kittrain.outcome.rank_output import LINES, WIDTH, clean, excerpt, innermost, last_line


def test_a_line_for_a_terminal_is_what_was_seen_last_without_its_control() -> None:
    assert clean("10 %|=>   |\r20 %|==>  |") == "20 %|==>  |"
    assert clean("\x1b[1;31mno\x1b[0m \x1b]0;title\x07data\tx\x07") == "no data    x\N{REPLACEMENT CHARACTER}"
    assert clean("windows\r\n") == "windows"


@given(st.lists(st.text(max_size=300), max_size=40))
def test_the_excerpt_is_short_whatever_was_printed(lines: list[str]) -> None:
    told = excerpt(lines)
    assert len(told) <= LINES
    assert all(len(line) <= WIDTH and line.isprintable() for line in told if line.isascii())


def test_the_last_lines_are_told_and_of_long_usage_its_beginning() -> None:
    assert excerpt(["old", "", *map(str, range(LINES))]) == tuple(map(str, range(LINES)))
    usage = ["usage: train.py [-h]", *("  [--a]" for _ in range(30)), "train.py: error: no such argument"]
    told = excerpt(usage)
    assert (told[0], told[-1], len(told)) == (usage[0], usage[-1], LINES)


def test_of_a_fatal_error_its_own_thread_is_told_and_what_came_before() -> None:
    others = ["Thread 0x01 (most recent call first):", *(f'  File "x.py", line {at} in wait' for at in range(20))]
    own = ["Current thread 0x02 (most recent call first):", '  File "train.py", line 4 in step', "Extension modules: a"]
    printed = [*map(str, range(9)), "Fatal Python error: Aborted", "", *others, "", *own, *others]
    assert excerpt(printed) == ("6", "7", "8", "Fatal Python error: Aborted", *own[:2])


def test_the_last_line_is_not_what_libraries_say_on_the_way_out() -> None:
    told = ["no data", "[rank0]:[W1122 10:11:12.13 ProcessGroup.cpp:1] Warning: not destroyed", "  ", ""]
    assert last_line(told) == "no data"
    assert last_line([]) == ""


def test_an_error_without_another_inside_is_itself() -> None:
    for error in ("ValueError: x\ny", "ValueError", "", "Traceback (most recent call last):"):
        assert innermost(error, "Traceback") == error


def test_the_innermost_of_several_tracebacks_counts() -> None:
    inner = "Traceback (most recent call last):\n  File 'a', line 1, in b\nKeyError: 'x'\n"
    outer = f"Caught KeyError in replica 1 on device 1.\nOriginal Traceback (most recent call last):\n  c\nE: {inner}"
    assert innermost(f"KeyError: {outer}", "") == "KeyError: 'x' (in replica 1 on device 1)"
