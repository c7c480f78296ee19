"""The local target: the same job as processes on this machine. Linux and macOS.

A job is a folder (``folder``). What is wanted of it stands in one file, what is true of it in others, and three kinds
of process act on that:

    kitctl submit ──> supervisor, one a job: makes what is wanted true (``reconcile`` decides, ``supervisor`` acts)
                        └── shim, one a node: starts the agent in a session of its own, keeps its log and its end
                              └── kittrain.agent: torchrun's elastic agent, and below it the ranks

Like a control plane, the supervisor keeps nothing in memory that is not in the folder: when it is killed the nodes
train on, and the next kitctl command starts another. A process is alive if it holds the lock on its file, which
the kernel takes away in the moment it dies; no process id is ever trusted for that.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kitctl.errors import UnsupportedError

if TYPE_CHECKING:
    from kitctl.targets import Submission, TargetOptions
    from kitctl.targets.local.target import LocalTarget


def connect(options: TargetOptions) -> LocalTarget:
    """The target, with its state in the user's state folder.

    Raises:
        UnsupportedError: this system has no file locks that end with their process (Windows).
    """
    if find_spec("fcntl") is None:
        raise UnsupportedError("the local target runs on Linux and macOS", fix="use a cluster: --target cluster")
    from kitctl.targets.local.target import LocalTarget  # noqa: PLC0415 - the supervisor does without

    return LocalTarget.of_user(options.warn)


def remarks(submission: Submission) -> list[str]:
    """Which options of a job mean nothing here."""
    from kitctl.targets.local import checks  # noqa: PLC0415 - as above

    return checks.remarks(submission.spec)
