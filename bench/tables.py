"""Writes every result of ``bench/results`` into docs/performance.md, between the markers with its name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.measure import RESULTS, ROOT

PAGE = ROOT / "docs" / "performance.md"


def main() -> None:
    """Rewrite the page."""
    page = PAGE.read_text(encoding="utf-8")
    for path in sorted(RESULTS.glob("*.json")):
        page = with_table(page, path.stem, json.loads(path.read_text(encoding="utf-8")))
    PAGE.write_text(page, encoding="utf-8")
    print(f"  {PAGE.relative_to(Path.cwd())} is up to date")


def with_table(page: str, name: str, result: dict[str, Any]) -> str:
    """The page with ``result`` between ``<!-- bench:name -->`` and ``<!-- /bench:name -->``.

    Raises:
        ValueError: the page has no such markers.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    section = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
    page, found = section.subn(lambda _: _section(name, result), page)
    if not found:
        raise ValueError(f"docs/performance.md has no markers for {name}: add {begin} and {end}")
    return page


def _section(name: str, result: dict[str, Any]) -> str:
    header = f"| {' | '.join(result['columns'])} |\n|{'---|' * len(result['columns'])}\n"
    rows = "".join(f"| {' | '.join(row)} |\n" for row in result["rows"])
    return f"{result['note']}\n\n{header}{rows}\n`make bench-{name}` on {result['machine']}.\n"


if __name__ == "__main__":
    main()
