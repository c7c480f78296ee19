"""Columns of text, as kubectl prints them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kitctl.base import printable


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns, three spaces apart, without trailing spaces. Line breaks in cells are escaped."""
    table = [header, *([printable.line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[number]) for row in table) for number in range(len(header))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
