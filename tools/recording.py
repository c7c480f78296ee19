"""``make recording``: runs ``make demo KILL=1`` and draws it as docs/images/kill.svg, an animation of a terminal.

The picture is plain SVG with CSS: a browser plays it, and where nothing moves it shows the last screen. Lines have the
times at which they came; pauses longer than ``LONGEST`` seconds are shortened.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "kill.svg"
LONGEST: Final = 1.5  # seconds
COLUMNS: Final = 104
WIDTH, LINE, MARGIN = 920, 19, 18  # pixels
TITLE: Final = "A node of a job is killed, and the job continues from its last snapshot"
STYLE: Final = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;animation:come .01s both}"
    "@keyframes come{from{opacity:0}to{opacity:1}}@media(prefers-reduced-motion){text{animation:none}}"
)
# What a line is about, by its colour: the first that matches.
COLOURS: Final = (
    (re.compile(r"^\$ "), "#e6edf3"),
    (re.compile(r"^demo: |lost"), "#ff7b72"),
    (re.compile(r"resuming|is back|Succeeded|accuracy \d\d\.\d+ %"), "#7ee787"),
    (re.compile(r"^\[rank"), "#a5d6ff"),
    (re.compile(r""), "#8b949e"),
)
# Lines that say the same for each node or rank, and rows of the page that a reader of the README does not need.
LEFT_OUT: Final = re.compile(
    r"^\[agent [12]\]: (node [12] of|done)|^\[rank [12]\]: lost its peers|^(Metrics|Outputs|Snapshot|Age|Runs on|Job) "
)


class Line(NamedTuple):
    """A line of output, and when it came, in seconds."""

    at: float
    text: str


def main() -> None:
    """Record and draw."""
    lines = shortened(record([sys.executable, "-m", "tools.demo", "--kill"]))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg(lines), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(lines)} lines, {lines[-1].at:.0f} s")


def record(command: list[str]) -> list[Line]:
    """The output of a command that has to succeed.

    Raises:
        CalledProcessError: it did not.
    """
    lines, started = [], time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        lines = [Line(time.monotonic() - started, text.rstrip()) for text in process.stdout]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, "\n".join(line.text for line in lines))
    return lines


def shortened(lines: list[Line]) -> list[Line]:
    """Those lines that tell something new, without long pauses and the time before the first."""
    shown: list[Line] = []
    now = before = lines[0].at
    for at, text in lines:
        now += min(at - before, LONGEST)
        before = at
        if text and not LEFT_OUT.search(text):
            shown.append(Line(now - lines[0].at, text if len(text) <= COLUMNS else f"{text[: COLUMNS - 1]}…"))
    return shown


def svg(lines: list[Line]) -> str:
    """The picture: each line appears at its time."""
    height = LINE * len(lines) + 2 * MARGIN
    rows = (
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (row + 0.75):.0f}" fill="{_colour(text)}"'
        f' style="animation-delay:{at:.2f}s">{escape(text)}</text>'
        for row, (at, text) in enumerate(lines)
    )
    size = f'viewBox="0 0 {WIDTH} {height}" xml:space="preserve"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{TITLE}">'
    back = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#0d1117"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", back, *rows, "</svg>\n"])


def _colour(text: str) -> str:
    return next(colour for pattern, colour in COLOURS if pattern.search(text))


if __name__ == "__main__":
    main()
