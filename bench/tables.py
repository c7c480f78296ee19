"""Writes every result of ``bench/results`` into the page of docs/ that has markers with its name."""

from __future__ import annotations

import json
import re
from typing import Any

from bench.measure import RESULTS, ROOT

PAGES = (ROOT / "docs" / "performance.md",)


def main() -> None:
    """Rewrite the pages."""
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    for name, result in results.items():
        page = next((one for one, text in texts.items() if f"<!-- bench:{name} -->" in text), PAGES[0])
        texts[page] = with_table(texts[page], name, result)
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
        print(f"  {page.relative_to(ROOT)} is up to date")


def with_table(page: str, name: str, result: dict[str, Any]) -> str:
    """The page with ``result`` between ``<!-- bench:name -->`` and ``<!-- /bench:name -->``.

    Raises:
        ValueError: the page has no such markers; no other one has.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    section = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
    page, found = section.subn(lambda _: _section(name, result), page)
    if not found:
        raise ValueError(f"no page of docs/ has markers for {name}: add {begin} and {end}")
    return page


def _section(name: str, result: dict[str, Any]) -> str:
    header = f"| {' | '.join(result['columns'])} |\n|{'---|' * len(result['columns'])}\n"
    rows = "".join(f"| {' | '.join(row)} |\n" for row in result["rows"])
    return f"{result['note']}\n\n{header}{rows}\n`make bench-{name}` on {result['machine']}.\n"


if __name__ == "__main__":
    main()
