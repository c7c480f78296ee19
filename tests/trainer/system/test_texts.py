"""Texts of scripts are kept in limited size."""

from __future__ import annotations

from kittrain.system.texts import HEAD, LINE, TAIL, kept_traceback


def test_a_traceback_keeps_both_ends_in_whole_lines() -> None:
    lines = [f'  File "train.py", line {number}, in walk' for number in range(5000)]
    kept = kept_traceback("\n".join(lines)).split("\n")
    assert kept[:HEAD] == lines[:HEAD]
    assert kept[HEAD] == f"  [... {len(lines) - len(kept) + 1} lines ...]"
    assert kept[HEAD + 1 :] == lines[-len(kept) + HEAD + 1 :]
    assert TAIL / 2 < len("\n".join(kept)) < 2 * TAIL


def test_a_long_line_keeps_its_ends_and_pushes_out_no_other() -> None:
    lines = ['  File "train.py", line 1, in f', f"    raise ValueError({'x' * 1_000_000})", "ValueError: no \udcff"]
    first, long, last = kept_traceback("\n".join(lines)).split("\n")
    assert (first, last) == (lines[0], "ValueError: no ?")
    assert len(long) <= LINE + 3
    assert long.startswith("    raise ValueError(xxx")
    assert kept_traceback("\n".join(lines[:1])) == lines[0], "a short one is unchanged"
