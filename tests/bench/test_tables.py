from __future__ import annotations

import re

import pytest

from bench.measure import ROOT
from bench.tables import PAGES, with_table

PAGE_BEFORE = "# P\n<!-- bench:start -->\nold\n<!-- /bench:start -->\n\nafter \\1\n"
RESULT = {"note": "How \\1 it was done.", "columns": ["a", "b"], "rows": [["1", "2"]], "machine": "2 cores"}


def test_a_table_replaces_only_the_text_between_its_markers() -> None:
    page = with_table(PAGE_BEFORE, "start", RESULT)
    assert page.startswith("# P\n<!-- bench:start -->\nHow \\1 it was done.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "old" not in page
    assert page.endswith("<!-- /bench:start -->\n\nafter \\1\n")
    assert with_table(page, "start", RESULT) == page


def test_a_result_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="bench:loop"):
        with_table(PAGE_BEFORE, "loop", RESULT)


def test_every_benchmark_has_markers_on_one_page() -> None:
    benches = re.search(r"^BENCHES := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert benches
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    places = re.findall(r"<!-- bench:([\w-]+) -->", text)
    assert sorted(places) == sorted([*benches[1].split(), "gpu", "compare-gpu"])
