"""``torchrun`` in the trainer image: in a pod of kittrain's runtime the node's agent, anywhere else torch's own.

A TrainJob may replace the command of its runtime's container: Kubeflow's SDK writes ``bash -c "... torchrun x.py"``.
This takes the place of torch's launcher there, so that such a job recovers, resumes and reports like any other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from kittrain.agent.fault_injection import processes

# Options without a value (torch.distributed.run); each other option has one.
FLAGS: Final = frozenset({"--standalone", "--run-path", "--use-env", "--virtual-local-rank"})
MODULE: Final = frozenset({"-m", "--module"})
PROGRAM: Final = "--no-python"
TORCHRUN: Final = ("-P", "-m", "torch.distributed.run")
AGENT: Final = ("-P", "-m", "kittrain.agent", "--")


class NotPythonError(Exception):
    """The ranks are to run a program that is no Python script."""


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Become a node's agent, or torch's launcher; returns an exit code only for an error."""
    if not is_node(environ):
        _become(*TORCHRUN, *arguments)
    try:
        command, ignored = parse(arguments)
    except NotPythonError:
        _log(f"{PROGRAM} is not supported here: start a Python script or module")
        return 2
    if ignored:
        _log(f"the job's runtime sets nodes and ranks; ignored: {' '.join(ignored)}")
    return _become(*AGENT, *command)


def is_node(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod's own command: neither outside of a job, nor called by a rank, nor by ``kubectl exec``."""
    in_pod = "KIT_RENDEZVOUS_HOST" in environ and "RANK" not in environ
    return in_pod and not ("KIT_POD" in environ and _has_agent(environ["KIT_POD"]))


def parse(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The agent's command, and the options that have no effect here.

    Raises:
        NotPythonError: the command is no Python script or module.
    """
    words, ignored, module = list(arguments), list[str](), list[str]()
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        name = option.replace("_", "-")
        if name == PROGRAM:
            raise NotPythonError
        if name in MODULE:
            module = ["-m"]
            continue
        ignored.append(option)
        if takes_next(name) and words:
            ignored.append(words.pop(0))
    return [*module, *words], ignored


def takes_next(option: str) -> bool:
    """Whether the next word is an option's value, which ``--tee=3``, ``-t3`` and flags have no need of."""
    return option not in FLAGS and "=" not in option and (option.startswith("--") or len(option) == len("-t"))


def _has_agent(pod: str) -> bool:
    """Whether the agent of this pod runs already."""
    variable = f"KIT_POD={pod}".encode()
    for process in processes():
        with suppress(OSError):  # it has ended, or is another user's
            if process.is_agent and variable in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                return True
    return False


def _become(*arguments: str) -> NoReturn:
    """Replace this process: what looks for agents knows them by their command line."""
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  what the user called


def _log(text: str) -> None:
    sys.stderr.write(f"torchrun: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
