"""Curves in a terminal and as a file: that they show what is there, fit, and obey nothing that a name says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from kitctl.output.view import chart, drawing
from kitctl.state.series import METRICS, Mark, Picture, Point, Run

PLANTED = '</title><script>alert(1)</script>"\x1b[2J\u202e'
SVG = "{http://www.w3.org/2000/svg}"


def run(name: str = "job", *, scale: float = 1.0) -> Run:
    curves = {metric: [[Point(float(x), scale * (1 + x % 5)) for x in range(100)]] for metric in METRICS}
    marks = (Mark(30.0, "fault", PLANTED, 40.0), Mark(50.0, "snapshot", "step 7"), Mark(60.0, "resized", "4 ranks"))
    return Run(name, curves, marks)


def picture(*runs: Run, metrics: tuple[str, ...] = tuple(METRICS)) -> Picture:
    return Picture("time", metrics, runs or (run(),))


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_a_chart_is_as_wide_as_the_terminal(width: int) -> None:
    lines = chart.chart(picture(), width=width, colour=False)
    assert max(map(len, lines)) in {width, width - 1}
    assert all(kind.title in "\n".join(lines) for kind in METRICS.values())


def test_without_colours_runs_are_told_apart_and_nothing_is_a_code() -> None:
    lines = chart.chart(picture(run("one"), run("two", scale=2.0)), width=80, colour=False)
    assert lines[0] == "⠤⠤⠤⠤ one   ⠄⠄⠄⠄ two"
    assert lines[1] == "x 2 faults  + 2 resized  ' 2 snapshots"
    assert "\x1b" not in "".join(lines)
    assert re.findall("\x1b\\[[0-9]+m", "".join(chart.chart(picture(), width=80, colour=True)))


def test_a_terminal_of_ascii_has_stars() -> None:
    text = "\n".join(chart.chart(picture(), width=80, colour=False, unicode=False))
    assert text.isascii()
    assert "*" in text


def test_a_curve_rises_from_the_left_to_the_right() -> None:
    rising = Run("job", {"throughput": [[Point(0.0, 0.0), Point(10.0, 10.0)]]}, ())
    lines = chart.chart(picture(rising, metrics=("throughput",)), width=60, colour=False)
    panel = [re.search("[\u2801-\u28ff]", line) for line in lines if line[chart.LABEL + 1 : chart.LABEL + 2] in "│┤"]
    starts = [found.start() for found in panel if found]
    assert starts == sorted(starts, reverse=True)
    assert len(starts) == chart.HEIGHT


def test_a_picture_is_valid_and_shows_all() -> None:
    root = ET.fromstring(drawing.svg(picture(run("one"), run("two", scale=2.0))))
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert {"one", "two", "2 faults", "2 snapshots", "2 resized", "time since the submission"} <= {*texts}
    assert len([one for one in root.iter(f"{SVG}path") if one.get("class") == "curve"]) == 2 * len(METRICS)
    assert {one.get("width") for one in root.iter(f"{SVG}rect") if one.get("class") == "lost"} != {None}


def test_what_is_planted_in_names_stays_text() -> None:
    text = drawing.svg(picture(run(PLANTED)))
    root = ET.fromstring(text)
    assert not [*root.iter(f"{SVG}script")]
    assert not re.search(r"[\x1b\u202e]", text)
    assert "<script" not in text
    assert "\x1b" not in "".join(chart.chart(picture(run(PLANTED)), width=80, colour=False))


def test_a_picture_needs_nothing_else() -> None:
    text = drawing.svg(picture())
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|href|url\(|@import|<script|\son\w+=", text)


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0], [-1.0, 1.0], [1e-9, 1e9], [3.0, 3.0]])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    for metric in METRICS:
        part = [Point(float(x), y) for x, y in enumerate(values)]
        found = picture(Run("job", {metric: [part] if part else []}, ()), metrics=(metric,))
        assert chart.chart(found, width=60, colour=False)
        ET.fromstring(drawing.svg(found))
