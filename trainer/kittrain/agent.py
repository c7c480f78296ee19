"""One node of a job: ``python -m kittrain.agent -- train.py --epochs 5`` (or ``-- -m package.module``).

Finds the other nodes, runs torchrun's own elastic agent on the command, begins anew when the rendezvous is lost, and
ends with an exit code that tells whoever restarts nodes what to do (``kittrain.job_spec.EXIT_CODES``).
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kittrain.env import NodeEnv, node_env
from kittrain.job_spec import EXIT_CODES
from kittrain.node.drain import Drain, DrainRequested
from kittrain.node.keeping import Keeper, keeper_of
from kittrain.node.memory import memory_folder
from kittrain.node.owner import identified
from kittrain.node.scratch import scratch_folder
from kittrain.node.secret import run_secret
from kittrain.node.surroundings import share_cores
from kittrain.node.zygote import Zygote
from kittrain.outcome import marker, termination
from kittrain.outcome.marker import finished
from kittrain.outcome.termination import Ending
from kittrain.rendezvous.hub_process import hub_process
from kittrain.rendezvous.settings import RendezvousSettings
from kittrain.system import console
from kittrain.system.apiserver import ApiError
from kittrain.system.console import say
from kittrain.system.imports import uncollected
from kittrain.system.lifeline import adopt_orphans
from kittrain.system.port import PortBusyError
from kittrain.system.storage import StorageUnavailableError, patiently
from kittrain.variables import EnvError

if TYPE_CHECKING:
    from kittrain.node.supervise import Supervisor


def main(argv: list[str] | None = None) -> int:
    """Be a node; returns the agent's exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    drain = Drain()
    drain.install()
    try:
        node = node_env()
    except EnvError as error:
        return _misconfigured(error)
    with _kept(node) as keeper:
        ending = _run(node, command, drain, keeper)
        termination.write(node.termination_log, ending, node_index=node.node_index)
        say(node.node_index, ending.summary)
    return node.exit_codes[ending.outcome]


@contextmanager
def _kept(node: NodeEnv) -> Iterator[Keeper | None]:
    """Have what this node prints kept, where that is wanted."""
    keeper = keeper_of(node, partial(say, node.node_index))
    if keeper is None:
        yield None
        return
    console.copy_to(keeper.put)
    try:
        yield keeper
    finally:
        console.copy_to(None)
        keeper.close()


def _misconfigured(error: EnvError) -> int:
    """The environment cannot be read, so neither can the exit codes; the default table's then."""
    path = os.environ.get("KIT_TERMINATION_LOG")
    termination.write(Path(path) if path else None, Ending(outcome="fatal", reason=str(error)), node_index=-1)
    say(-1, f"fatal: {error}")
    return EXIT_CODES["fatal"]


def _check(node: NodeEnv, command: list[str]) -> Ending | None:
    """What can be told before torch is imported.

    Raises:
        StorageUnavailableError: whether the run has finished cannot be told.
    """
    if (folder := node.snapshot_dir) and patiently(
        lambda: finished(folder, node.run_id), folder, lambda text: say(node.node_index, f"warning: {text}")
    ):
        return termination.FINISHED if node.owner is None else _ambiguous(node, marker.path(folder, node.run_id))
    if not command:
        return Ending(outcome="fatal", reason="no command: give a script, or -m and a module, after --")
    if command[0] == "-m":
        return None if len(command) > 1 else Ending(outcome="fatal", reason="-m without a module")
    if not Path(command[0]).is_file():
        return Ending(outcome="fatal", reason=f"the script {command[0]} does not exist in {Path.cwd()}")
    return None


def _ambiguous(node: NodeEnv, mark: Path) -> Ending:
    """The run has finished, and this node may be of another one: who says that it is done may not have trained."""
    fix = f"submit it with kitctl, let its service account get {node.owner} (security.reportStatus), or delete {mark}"
    return Ending(outcome="fatal", reason=f"a run {node.run_id} has finished already; if this is a new one, {fix}")


def _run(node: NodeEnv, command: list[str], drain: Drain, keeper: Keeper | None) -> Ending:
    if node.kitctl_version not in {None, version()}:
        say(node.node_index, f"warning: kitctl is version {node.kitctl_version}, the trainer here {version()}")
    try:
        with drain.interruptible():
            node = identified(node, os.environ, partial(say, node.node_index))
        return _check(node, command) or _supervise(node, command, drain, keeper)
    except DrainRequested:
        return Ending(outcome="drained", reason="the node was told to leave")
    except EnvError as error:
        return Ending(outcome="fatal", reason=str(error))
    except (ApiError, PortBusyError, StorageUnavailableError) as error:
        return Ending(outcome="retryable", reason=str(error))
    except Exception as error:  # noqa: BLE001  whatever it was, it must reach the termination message
        say(node.node_index, traceback.format_exc())
        return Ending(outcome="retryable", reason=f"the agent failed: {type(error).__name__}: {error}")


def _supervise(node: NodeEnv, command: list[str], drain: Drain, keeper: Keeper | None) -> Ending:
    """Set up what one node needs, in the order in which others wait for it, and run the node to its end."""
    settings = RendezvousSettings.from_conf(node.rendezvous_conf)
    adopt_orphans()
    share_cores(node, os.environ)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        stack.enter_context(memory_folder(node))
        with drain.interruptible():
            hosts = node.hosts_rendezvous and node.rendezvous == "hub"
            secret = run_secret(node, partial(say, node.node_index))
            hub = stack.enter_context(hub_process(node, settings, secret=secret)) if hosts else None
            supervisor = load(node)
            warm = node.warm_workers and sys.platform == "linux"
            zygote = stack.enter_context(closing(Zygote())) if warm else None
        _quiet_torch()
        if keeper:
            keeper.start()  # a thread: not before the zygote is forked
            node = replace(node, lives=keeper.lives)
        life = supervisor(
            node, command, settings=settings, secret=secret, hub=hub, zygote=zygote, drain=drain, scratch=scratch
        )
        return life.run()


def load(node: NodeEnv) -> type[Supervisor]:
    """Import torch, and what of this package needs it."""
    with uncollected(), _quiet_stores() if node.rendezvous == "c10d" else nullcontext():
        from kittrain.node.supervise import Supervisor  # noqa: PLC0415
    return Supervisor


@contextmanager
def _quiet_stores() -> Iterator[None]:
    """Import torch so that a store that goes away with its node is no news: each attempt to use it prints a C++ stack.

    Ranks that are forked from here keep their errors, but not their warnings.
    """
    name = "TORCH_CPP_LOG_LEVEL"  # read once, when torch is loaded
    given = os.environ.get(name)
    os.environ.setdefault(name, "ERROR")
    yield
    if given is None:
        del os.environ[name]


def _quiet_torch() -> None:
    """Keep to this process, not its ranks, what the agent tells in its own words."""
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch for its logs
        logging.getLogger("torch.distributed").handlers[:] = [logging.NullHandler()]  # it has no other way out


def version() -> str:
    """The version of this package, or ``unknown`` where it runs from bare files."""
    try:
        return importlib.metadata.version("kitctl")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
