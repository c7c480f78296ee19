"""The scripts in README and in the trainer's guide run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "trainer.md"


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "result", "limit"),
    [(0, r"mean squared error (\S+) on 1000 samples", 0.01), (1, r"200 steps, the last loss was (\S+)", 0.05)],
    ids=["fit", "own loop"],
)
def test_the_guides_script_trains(tmp_path: Path, number: int, result: str, limit: float) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    script = [one for one in blocks if "__main__" in one][number]
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    environ = {**os.environ, "KIT_SNAPSHOT_DIR": str(tmp_path / "snapshots")}
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, check=True, cwd=tmp_path, env=environ, capture_output=True, text=True)
    error = re.search(result, done.stdout)
    assert error is not None, done.stdout
    assert float(error[1]) < limit
    assert (tmp_path / "snapshots" / "model.pt").exists()


@pytest.mark.wide
@pytest.mark.slow
def test_the_script_in_the_readme_trains(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    environ = {**os.environ, "KIT_SNAPSHOT_DIR": str(tmp_path / "snapshots")}
    subprocess.run([sys.executable, "train.py"], check=True, cwd=tmp_path, env=environ)
    assert (tmp_path / "snapshots" / "model.pt").exists()


def test_the_recording_is_a_picture_of_a_recovered_job() -> None:
    picture = ET.parse(ROOT / "docs" / "images" / "kill.svg")
    lines = [text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    found = [
        next(n for n, line in enumerate(lines) if re.search(p, line)) for p in ("killed", "resuming", "Succeeded$")
    ]
    assert found == sorted(found)
    assert not [line for line in lines if "/root/" in line or "/home/" in line]
