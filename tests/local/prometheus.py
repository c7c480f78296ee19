"""A real Prometheus for tests: the one that is installed, else Debian's package, unpacked under ``.cache``."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kittrain.system.port import listen

FOLDER = Path(__file__).parents[2] / ".cache" / "prometheus"


def promtool() -> str:
    """Prometheus' tool."""
    return _program("promtool")


@contextmanager
def server(folder: Path, *targets: str) -> Iterator[Callable[[str], list[float]]]:
    """A Prometheus that scrapes these addresses each second; yields what answers a query by its values."""
    with listen("127.0.0.1", 0) as found:
        port = found.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "kitctl", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        _program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:

        def ask(query: str) -> list[float]:
            address = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
            try:
                with urllib.request.urlopen(address, timeout=60) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                return []
            return [float(one["value"][1]) for one in found]

        try:
            yield ask
        finally:
            process.terminate()


def _program(name: str) -> str:
    if found := shutil.which(name):
        return found
    program = FOLDER / "usr" / "bin" / name
    if not program.exists():
        _unpack()
    return str(program)


def _unpack() -> None:
    """Download Debian's package and unpack it; nothing is installed."""
    if not shutil.which("apt-get"):
        pytest.skip("no prometheus here, and no apt-get to have it from")
    FOLDER.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["apt-get", "download", "prometheus"], check=False, cwd=FOLDER, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"prometheus cannot be downloaded: {done.stderr}")
    (package,) = FOLDER.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "-x", package, FOLDER], check=True)
