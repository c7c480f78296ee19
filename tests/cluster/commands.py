"""The command line on the test cluster, as somebody who has a kubeconfig uses it."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

from kitctl.__main__ import main
from kitctl.targets.cluster.transport import Transport
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUBECONFIG, TRAINER_IMAGE
from tests.cluster.kubectl import until

State = dict[str, Any]
# A job that asks for a node which is not there: all its objects are made, and no container runs.
NOWHERE: Final = ("--selector", "kitctl.test/no-such=node")
GROUPS: Final = frozenset({"snapshots"})  # whose verbs are two words
IDLE: Final = (*NOWHERE, "--set", "snapshots.enabled=false")


def kitctl(*words: str, exit_code: int = 0, kubeconfig: Path = KUBECONFIG) -> str:
    """What a command prints, remarks and all; its exit code must be as expected."""
    output, remarks = _run(words, exit_code, kubeconfig)
    return output + remarks


def job(name: str, namespace: str, *options: str) -> tuple[str, ...]:
    """The options of a job that uses the cluster's trainer image."""
    return ("--name", name, "-n", namespace, "--image", pushed(TRAINER_IMAGE), *options)


def status(name: str, namespace: str) -> State:
    """A job's state as JSON."""
    output, _ = _run(("status", name, "-n", namespace, "-o", "json"), 0, KUBECONFIG)
    told: State = json.loads(output)
    return told


def until_status(name: str, namespace: str, check: Callable[[State], object]) -> State:
    """A job's state once ``check`` holds for it."""
    seen: list[State] = []

    def holds() -> object:
        seen[:] = [status(name, namespace)]
        return check(seen[0])

    try:
        until(holds)
    except AssertionError as error:
        error.add_note(f"{seen}\n{kitctl('logs', name, '-n', namespace, '--tail', '30')}")
        raise
    return seen[0]


def survives(number: int, *words: str) -> bool:
    """Whether a command comes to its end with fewer than ``number`` requests; else it is killed before that one."""
    process = multiprocessing.get_context("fork").Process(target=_run_to, args=(number, words))
    process.start()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}, f"kitctl {' '.join(words)}: {process.exitcode}"
    return process.exitcode == 0


def _run(words: tuple[str, ...], exit_code: int, kubeconfig: Path) -> tuple[str, str]:
    length = 2 if words[0] in GROUPS else 1
    verb, rest = words[:length], words[length:]
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as remarks:
        code = main([*verb, "--kubeconfig", str(kubeconfig), *rest])
    told = output.getvalue(), remarks.getvalue()
    assert code == exit_code, f"kitctl {' '.join(words)}: {code}\n{''.join(told)}"
    return told


def _run_to(number: int, words: tuple[str, ...]) -> None:
    """In a process of its own: be killed before request ``number``."""
    counted, send = itertools.count(1), Transport._answer

    def send_or_die(self: Transport, *request: Any, **options: Any) -> Any:
        if next(counted) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return send(self, *request, **options)

    Transport._answer = send_or_die  # type: ignore[method-assign]
    _run(words, 0, KUBECONFIG)
