from __future__ import annotations

from kitctl.output.view.columns import columns


def test_a_cell_is_one_line_whatever_it_holds() -> None:
    rows = [["a\nFORGED   Succeeded", "1"], ["\x1b[2J", "22"]]
    assert columns(("NAME", "N"), rows) == [
        "NAME                    N",
        r"a\nFORGED   Succeeded   1",
        r"\x1b[2J                 22",
    ]
