"""Columns of text, as kubectl prints them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kitctl.output.view.layout import table


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns, three spaces apart, without trailing spaces. Line breaks in cells are escaped."""
    return table(header, rows)
