"""The client of the trainer's fork server: sends orders, receives process ids."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final

from kitctl.base import names
from kitctl.targets.local import shim
from kitctl.targets.local.records import SubmittedJob

IMPORT_TIMEOUT: Final = 300.0  # seconds until the server is ready, on a busy machine
FORK_TIMEOUT: Final = 30.0  # seconds


class ForkServerLost(Exception):
    """The fork server has ended, or does not answer."""


class ForkServer:
    """``kittrain.agent.forkserver``. It ends with this process, which closes its stdin; the nodes continue."""

    def __init__(self, job: SubmittedJob, env: Mapping[str, str]) -> None:
        process = subprocess.Popen(
            [job.python, *names.PYTHON[1:], names.FORK_SERVER, shim.__file__],
            cwd=job.folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin
        assert process.stdout
        self._process, self._orders, self._answers = process, process.stdin, process.stdout
        self._deadline = time.monotonic() + IMPORT_TIMEOUT
        self._warm = False

    def warm(self) -> bool:
        """Whether it has imported everything; does not wait.

        Raises:
            ForkServerLost: it has failed, or takes too long.
        """
        if not self._warm and self._answered(0.0):
            self._warm = self._answer().get("ready", False)
        if not self._warm and time.monotonic() > self._deadline:
            raise ForkServerLost(f"not ready within {IMPORT_TIMEOUT:.0f} s")
        return self._warm

    def start(self, order: Mapping[str, object]) -> int:
        """Fork a shim, which starts its agent; returns the shim's process id.

        Raises:
            ForkServerLost: it does not answer.
        """
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise ForkServerLost(str(error)) from error
        if not self._answered(FORK_TIMEOUT):
            raise ForkServerLost(f"no answer within {FORK_TIMEOUT:.0f} s")
        return int(self._answer()["pid"])

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def _answered(self, seconds: float) -> bool:
        return bool(select.select([self._answers], [], [], seconds)[0])

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise ForkServerLost(f"it ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
