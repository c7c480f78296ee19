"""``python -P -m kittrain.rank.snapshots.mirror``: what the agent and rank 0 run next to training, without torch.

``check`` looks whether the mirror can be used; ``upload`` keeps it up with the folder until the end of stdin, and then
until all is uploaded; ``fetch`` brings the newest snapshot into a folder that has none. Exit code 1: somebody has to
change something; 3: another node of this run uploads now; 75: the store does not answer, try again; 69, of a check for
``submit``: the library is not here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kittrain.job.env import RankEnv, rank_env
from kittrain.rank.snapshots.folder.listing import is_empty
from kittrain.rank.snapshots.folder.retention import Retention
from kittrain.rank.snapshots.mirror import fetching
from kittrain.rank.snapshots.mirror import index as indices
from kittrain.rank.snapshots.mirror.errors import (
    MirrorDamagedError,
    MirrorError,
    MirrorHandedOverError,
    MirrorLibraryError,
    MirrorUnavailableError,
    brief,
)
from kittrain.rank.snapshots.mirror.index import Owner
from kittrain.rank.snapshots.mirror.store import RETRIES, SUBSTITUTE, Store
from kittrain.rank.snapshots.mirror.uploading import Uploader
from kittrain.rank.snapshots.mirror.writing import Mirror, read_index
from kittrain.system.console import log
from kittrain.system.parent_death import die_with_parent
from kittrain.system.priority import yield_to_training

UNAVAILABLE: Final = 75  # sysexits' EX_TEMPFAIL
NO_LIBRARY: Final = 69  # EX_UNAVAILABLE
HANDED_OVER: Final = 3  # kittrain.agent.processes.mirror
AHEAD: Final = (
    "warning: {0} has {1} of this run, which is newer than all that {2} has, and training goes on from there; if that "
    "is not meant: submit --continue {0} with another --name or --claim, whose folder is empty\n"
)
NOTHING: Final = (
    "warning: resume: {0} has no snapshot to continue from; unless there is one in the job's own folder, it starts at "
    "step 0\n"
)
NICE: Final = 19  # 1.4 % of a processor that ranks keep busy; the lag that follows is shown


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the reason of a failure is the last line on stderr."""
    line = argparse.ArgumentParser(prog="python -m kittrain.rank.snapshots.mirror", description=__doc__)
    line.add_argument("command", choices=("check", "upload", "fetch"))
    line.add_argument("--status", type=Path, help="file for how far the upload is")
    line.add_argument("--parent", type=int, help="process id that the upload ends with")
    line.add_argument("--within", type=float, help="seconds that a check may take: submit waits for it")
    line.add_argument("--above", type=int, nargs=2, default=(0, 0), help="generation and step that a fetch leaves out")
    options = line.parse_args(argv)
    env = rank_env()
    try:
        return {"check": check, "upload": upload, "fetch": fetch}[options.command](env, options)
    except MirrorHandedOverError:
        return HANDED_OVER  # the log has it
    except MirrorLibraryError as error:
        sys.stderr.write(f"{error}\n")
        return 1 if options.within is None else NO_LIBRARY
    except (MirrorError, MirrorDamagedError) as error:
        sys.stderr.write(f"{brief(str(error), whole=True)}\n")
        return 1
    except (MirrorUnavailableError, OSError) as error:
        sys.stderr.write(f"{brief(str(error))}\n")
        return UNAVAILABLE


def check(env: RankEnv, options: argparse.Namespace) -> int:
    """Whether this run may use the mirror, and the store does what the fence needs; its warnings are on stderr."""
    folder, run = env.snapshot_dir, env.run_id  # None: not known where this runs
    store = Store(env.job.snapshots.mirror, retries=RETRIES if options.within is None else 0)
    if options.within is not None:
        _limit(options.within, store.url)
    found = read_index(store)
    if env.job.resume and not (found and found[0].snapshots) and (folder is None or is_empty(folder)):
        sys.stderr.write(NOTHING.format(store.url))
    if found:
        indices.check_run(found[0], run, resume=bool(env.job.resume), url=store.url)
    if found and folder is not None:
        fetching.check_folder(store, found[0], folder, run=run)
        if ahead := fetching.newer_than(folder, found[0], run=run):
            sys.stderr.write(AHEAD.format(store.url, ahead.name, folder))
    try:
        store.probe()
    except MirrorError as error:
        if not (found and found[0].owner.run == run):
            raise
        # This node begins anew, and has forgotten: others may have in memory what the mirror does not take now.
        sys.stderr.write(f"warning: snapshots are not mirrored now: {error}\n")
    return 0


def _limit(seconds: float, url: str) -> None:
    """End this process after so long: the library's calls cannot be interrupted."""

    def end() -> None:
        sys.stderr.write(f"{url} does not answer within {seconds:g} s\n")
        sys.stderr.flush()
        os._exit(UNAVAILABLE)

    watch = threading.Timer(seconds, end)
    watch.daemon = True
    watch.start()


def upload(env: RankEnv, options: argparse.Namespace) -> int:
    """Keep the mirror up with the folder."""
    yield_to_training(NICE)
    if options.parent:
        die_with_parent(options.parent)
    folder, say = _folder(env), partial(log, env.node_index)
    job = env.job
    host, substitute = os.uname().nodename, options.status.with_suffix(SUBSTITUTE)
    owner = Owner(run=env.run_id, job=job.name, claim=uuid.uuid4().hex[:16], host=host, since=time.time())

    def opened() -> Mirror:
        return Mirror(Store(job.snapshots.mirror, substitute=substitute), owner, resume=bool(job.resume))

    uploader = Uploader(
        url=job.snapshots.mirror,
        node=env.node_index,
        open=opened,
        folder=folder,
        run=env.run_id,
        retention=Retention(env),
        status=options.status,
        log=say,
        gathers=job.snapshots.storage != "claim",
        gives_up=not job.snapshots.in_memory,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # of a terminal or a group of processes: the agent decides
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_finish_with, args=(uploader.finishing, substitute), daemon=True).start()
    return 0 if uploader.run_until_done() else 1


def _finish_with(finishing: threading.Event, substitute: Path) -> None:
    """Finish at the end of stdin, and end a drill. A signal could come before there is a handler for it."""
    sys.stdin.buffer.read()
    substitute.unlink(missing_ok=True)
    finishing.set()


def fetch(env: RankEnv, options: argparse.Namespace) -> int:
    """Bring the newest snapshot into the folder, if that has none; or those that the nodes have are older."""
    folder, say = _folder(env), partial(print, flush=True)  # this is rank 0's output
    if env.job.snapshots.storage == "claim" and not is_empty(folder):
        return 0  # else what is there is not whole
    store, began = Store(env.job.snapshots.mirror), time.monotonic()
    above, resume = tuple(options.above), bool(env.job.resume)
    entry = fetching.fetch(store, folder, run=env.run_id, resume=resume, above=above, log=say)
    if entry:
        took = time.monotonic() - began
        say(f"{entry.name} of run {entry.run} comes from {store.url}: {entry.size / 1e6:.1f} MB in {took:.1f} s")
    return 0


def _folder(env: RankEnv) -> Path:
    if env.snapshot_dir is None:
        raise MirrorError("snapshots.mirror needs a snapshot folder; fix: set snapshots.enabled")
    return env.snapshot_dir


if __name__ == "__main__":
    sys.exit(main())
