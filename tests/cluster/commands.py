"""The command line on the test cluster, as a user with a kubeconfig runs it."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final

from kitctl.cli.main import main
from kitctl.targets.cluster.connection.transport import Transport
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUBECONFIG, TRAINER_IMAGE
from tests.cluster.kubectl import until

State = dict[str, Any]
# A job that asks for a node that does not exist: its objects are created, and no container runs.
NOWHERE: Final = ("--selector", "kitctl.test/no-such=node")
GROUPS: Final = frozenset({"snapshots"})  # groups whose commands are two words
UNREACHABLE: Final = "cannot be reached"  # what a command says of a cluster whose answer does not come in time
IDLE: Final = (*NOWHERE, "--set", "snapshots.enabled=false")


def kitctl(*words: str, exit_code: int = 0, kubeconfig: Path = KUBECONFIG) -> str:
    """A command's output, stderr included; its exit code must be as expected."""
    stdout, stderr = _run(words, exit_code, kubeconfig)
    return stdout + stderr


def job(name: str, namespace: str, *options: str, image: str = TRAINER_IMAGE) -> tuple[str, ...]:
    """The options of a job that uses the cluster's trainer image, or another one that was pushed."""
    return ("--name", name, "-n", namespace, "--image", pushed(image), *options)


def status(name: str, namespace: str) -> State:
    """A job's state as JSON."""
    stdout, _ = _run(("status", name, "-n", namespace, "-o", "json"), 0, KUBECONFIG)
    state: State = json.loads(stdout)
    return state


def until_status(name: str, namespace: str, check: Callable[[State], object]) -> State:
    """A job's state once ``check`` holds for it."""
    seen: list[State] = []

    def holds() -> object:
        try:
            seen[:] = [status(name, namespace)]
        except AssertionError as error:
            if UNREACHABLE not in str(error):
                raise
            return False  # where a machine has no processor to spare, its API server answers late now and then
        return check(seen[0])

    try:
        until(holds)
    except AssertionError as error:
        error.add_note(f"{seen}")
        with suppress(AssertionError):
            error.add_note(kitctl("logs", name, "-n", namespace, "--tail", "30"))
        raise
    return seen[0]


def until_formed(name: str, namespace: str, before: State) -> None:
    """Wait until a new group of ranks has formed.

    The job's ``restarts`` do not tell: kubelet gives a pod that is deleted at once two seconds, in which it may drain.
    """
    until_status(name, namespace, lambda state: (state["formed"] or 0) > before["formed"])


def survives(number: int, *words: str) -> bool:
    """Whether a command ends with fewer than ``number`` requests; it is killed before that one."""
    process = multiprocessing.get_context("fork").Process(target=_run_to, args=(number, words))
    process.start()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}, f"kitctl {' '.join(words)}: {process.exitcode}"
    return process.exitcode == 0


def _run(words: tuple[str, ...], exit_code: int, kubeconfig: Path) -> tuple[str, str]:
    length = 2 if words[0] in GROUPS else 1
    command, rest = words[:length], words[length:]
    with redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
        code = main([*command, "--kubeconfig", str(kubeconfig), *rest])
    output = stdout.getvalue(), stderr.getvalue()
    assert code == exit_code, f"kitctl {' '.join(words)}: {code}\n{''.join(output)}"
    return output


def _run_to(number: int, words: tuple[str, ...]) -> None:
    """Run a command in this process, which is killed before request ``number``."""
    counted, send = itertools.count(1), Transport._answer

    def send_or_die(self: Transport, *request: Any, **options: Any) -> Any:
        if next(counted) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return send(self, *request, **options)

    Transport._answer = send_or_die  # type: ignore[method-assign]
    _run(words, 0, KUBECONFIG)
