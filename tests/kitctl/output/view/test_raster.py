"""PNG of pictures: sharp, with their text, or an error that says what is missing."""

from __future__ import annotations

import struct
import sys

import pytest

from kitctl.base.errors import UsageError
from kitctl.output.view import drawing, raster
from kitctl.state import series
from kitctl.state.history import JobHistory
from kitjob import timeline
from tests.kitctl.localjobs import PAST


def drawn(name: str) -> str:
    lines = b'{"run":"r"}\n' + timeline.content(PAST)
    job = JobHistory(name=name, namespace="n", nodes=1, submitted=100.0, now=160.0, run="r", lines=lines)
    return drawing.svg(series.picture([job], metrics=["loss"]))


def test_a_png_has_twice_the_size_and_the_text() -> None:
    pytest.importorskip("resvg_py", reason="make setup installs it")
    one, other = raster.png(drawn("one")), raster.png(drawn("other"))
    assert one.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", one[16:24])[0] == 2 * drawing.WIDTH
    assert one != other, "their names are drawn"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raster, "FONTS", ("No Such Font",))
    if "resvg_py" in sys.modules:
        with pytest.raises(UsageError, match="no font for a PNG is installed: No Such Font"):
            raster.png(drawn("job"))
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UsageError, match="needs the package resvg-py"):
        raster.png(drawn("job"))
