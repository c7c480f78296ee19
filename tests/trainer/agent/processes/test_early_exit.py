"""Where a script ends a rank in the middle of a function."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from kittrain.agent.processes import early_exit


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("import sys\ndef stop():\n    sys.exit()\nstop()", "train.py:3 in stop"),
        (("import signal\ndef stop(*_):\n    raise SystemExit(0)\nsignal.signal(signal.SIGUSR1, stop)\n"
         "signal.raise_signal(signal.SIGUSR1)"), "train.py:3 in stop"),
        ("import sys\nsys.exit()", ""),  # its end
        ("import argparse\ndef parse():\n    argparse.ArgumentParser().parse_args(['--help'])\nparse()", ""),
    ],
)  # fmt: skip
def test_the_line_of_the_scripts_own_function(script: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(tmp_path / "train.py"), run_name="__main__")
    heartbeat = tmp_path / "heartbeat"
    early_exit.note(caught.value, {"KIT_HEARTBEAT_FILE": str(heartbeat)})
    assert early_exit.place(heartbeat, os.getpid()) == told
    assert early_exit.place(heartbeat, 1) == "", "another process"


def test_without_a_heartbeat_or_its_folder_nothing_is_noted(tmp_path: Path) -> None:
    def stop() -> None:
        sys.exit(0)

    with pytest.raises(SystemExit) as caught:
        stop()
    early_exit.note(caught.value, {})
    early_exit.note(caught.value, {"KIT_HEARTBEAT_FILE": str(tmp_path / "gone" / "heartbeat")})
    assert [*tmp_path.iterdir()] == []
