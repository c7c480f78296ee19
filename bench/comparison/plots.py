"""Draws the comparison's plots from its results: docs/images/compare*.png.

python -m bench.comparison.plots
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.comparison.compare import speed
from bench.measure import RAW, ROOT

IMAGES = ROOT / "docs" / "images"
Found = Mapping[str, list[dict[str, Any]]]  # trials by way


def main() -> None:
    """Draw each result of this machine."""
    mpl.use("Agg")
    IMAGES.mkdir(exist_ok=True)
    for path in sorted(RAW.glob("compare*.json")):
        draw(path.stem, json.loads(path.read_text(encoding="utf-8")))


def draw(name: str, found: Found) -> None:
    """One picture: speed and memory by way, and each way's loss by time."""
    figure, (speeds, memory, losses) = plt.subplots(1, 3, figsize=(13, 0.45 * len(found) + 1.2))
    ways = list(found)
    speeds.barh(ways, [statistics.median(map(speed, found[way])) for way in ways], color="#4477aa")
    speeds.set_xlabel("windows per second")
    used = [statistics.median(trial["memory"] for trial in found[way]) / 1e6 for way in ways]
    memory.barh(ways, used, color="#cc6677")
    memory.set_xlabel("memory per rank, MB")
    memory.set_yticklabels([])
    for axes in (speeds, memory):
        axes.invert_yaxis()
    for way in ways:
        trial = found[way][-1]
        losses.plot(trial["seconds"], trial["losses"], label=way, linewidth=1.2)
    losses.set_xlabel("seconds of training")
    losses.set_ylabel("loss")
    losses.legend(fontsize="xx-small")
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    print(f"  docs/images/{name}.png is up to date")


if __name__ == "__main__":
    main()
