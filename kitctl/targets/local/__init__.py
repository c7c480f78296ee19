"""The local target: the same job as processes on this machine. Linux and macOS.

A job is a folder (``folder``) with its desired and its observed state. Three kinds of process work on it:

    kitctl submit ──> supervisor, one per job: brings the job to its desired state (``reconcile`` decides)
                        └── shim, one per node: starts the agent in its own session, records its log and exit code
                              └── kittrain.agent: torchrun's elastic agent, and below it the ranks

Like a control plane, the supervisor keeps no state that is not in the folder: when it is killed the nodes continue, and
the next kitctl command starts another one. A process is alive if it holds the lock on its file, which the kernel
releases when the process dies; process ids are never used for that.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kitctl.base.errors import UnsupportedError

if TYPE_CHECKING:
    from kitctl.targets import Submission, TargetOptions
    from kitctl.targets.local.local_target import LocalTarget


def connect(options: TargetOptions) -> LocalTarget:
    """The target, with its state in the user's state folder.

    Raises:
        UnsupportedError: this system has no file locks that end with their process (Windows).
    """
    if find_spec("fcntl") is None:
        raise UnsupportedError("the local target runs on Linux and macOS", fix="use a cluster: --target cluster")
    from kitctl.targets.local.local_target import LocalTarget  # noqa: PLC0415 - the supervisor does without

    return LocalTarget.of_user(options.warn)


def remarks(submission: Submission) -> list[str]:
    """Warns of options that have no effect here."""
    from kitctl.targets.local import local_checks  # noqa: PLC0415 - as above

    return local_checks.remarks(submission)
