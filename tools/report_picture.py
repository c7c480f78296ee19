"""``make report-picture``: the top of a real job's report as docs/images/report.png, for README and docs/report.md.

Trains the digits on three local nodes, kills two agents meanwhile, and has a headless Chromium show the report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image

from tools import setup

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "report.png"
KITCTL: Final = (sys.executable, "-m", "kitctl")
JOB: Final = "digits"
WIDTH, HEIGHT = 1120, 1180  # pixels
COLOURS: Final = 255  # a third of the bytes, and no difference that is seen


def main() -> None:
    """Run, report, draw."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None and setup.apt_install("chromium"):
        browser = shutil.which("chromium")
    if browser is None:
        sys.exit("no Chromium here; install Debian's package chromium")
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "report.html", Path(folder) / "report.png"
        environ = {**os.environ, "XDG_STATE_HOME": folder, "KITCTL_TARGET": "local"}
        options = ("--nodes", "3", "--name", JOB, "--workload", "digits", "--snapshot-every", "60")
        for words in (
            ("submit", *options, "--", "--epochs", "40"),
            ("drill", JOB, "--fault", "kill-agent", "--count", "2", "--every", "25s", "--seed", "3", "-y"),
            ("wait", JOB),
            ("report", JOB, "-o", str(page)),
        ):
            subprocess.run([*KITCTL, *words], check=True, env=environ, cwd=ROOT)
            if words[0] == "submit":
                _await_step(environ)
        headless = ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder}/profile")
        size = f"--window-size={WIDTH},{HEIGHT}"
        subprocess.run(
            [browser, *headless, size, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True
        )
        with Image.open(shot) as image:
            image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")


def _await_step(environ: dict[str, str]) -> None:
    """Wait until the job trains, which a drill needs."""
    lines = subprocess.Popen([*KITCTL, "logs", "-f", JOB], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert lines.stdout
        next(line for line in lines.stdout if "step" in line)
    finally:
        lines.terminate()
        lines.wait()


if __name__ == "__main__":
    main()
