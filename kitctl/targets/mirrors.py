"""Looks at the bucket of a job's mirror before anything is created: by the check that node 0 makes, in a process.

So no store's library is imported here, and none of it for jobs without a mirror.

Why: decision 61.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final, NamedTuple

from kitctl.base import names
from kitctl.spec.job_spec import JobSpec
from kitjob import document, variables
from kitjob.run import RunFacts

WORDS: Final = (names.MIRROR, "check", "--within")
SECONDS: Final = 2.0  # that submit waits for the store
LONGEST: Final = 10.0  # the same, and for a process on a busy machine
WARNING: Final = "warning: "
REFUSED, NO_LIBRARY = 1, 69  # its exit codes
LIBRARY: Final = "obstore"
CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
NO_RUN: Final = "not-submitted-yet"


class Look(NamedTuple):
    """What a look has found.

    Attributes:
        refused: why the mirror cannot be used until somebody changes something, with the fix; empty: it can.
        unreached: why the store did not answer, which it may do later.
        warnings: what the user should know.
        asked: whether there was what it takes to ask the store.
    """

    refused: str = ""
    unreached: str = ""
    warnings: tuple[str, ...] = ()
    asked: bool = True


def look(spec: JobSpec, python: Sequence[str], environ: Mapping[str, str], folder: str = "") -> Look:
    """Whether a new run could use its mirror.

    Args:
        spec: the job.
        python: the command that runs a module of the trainer.
        environ: has the credentials, if there are any.
        folder: of the job's snapshots; empty: it is not here.
    """
    told = {
        variables.KIT_SPEC: document.write(spec, RunFacts()),
        variables.KIT_RUN_ID: NO_RUN,
        variables.KIT_SNAPSHOT_DIR: folder,
    }
    try:
        done = subprocess.run(
            [*python, *WORDS, str(SECONDS)],
            env={**environ, **told},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return Look(unreached=f"{spec.snapshots.mirror} was not checked within {LONGEST:g} s")
    lines = done.stderr.strip().splitlines() or ["no reason given"]
    said = tuple(line.removeprefix(WARNING) for line in lines if line.startswith(WARNING))
    if done.returncode == NO_LIBRARY:
        return Look(asked=False, refused=lines[-1])
    if done.returncode == REFUSED:
        return Look(refused=lines[-1], warnings=said)
    if done.returncode:
        return Look(unreached=lines[-1], warnings=said)
    return Look(warnings=said)


def warnings_from_afar(spec: JobSpec, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What this machine can tell of a mirror that pods will use: warnings alone, as they have other credentials.

    Nothing without the library or credentials here, of a store that answers only pods, or whose address only they know.
    """
    hidden = spec.env_from or any(name in spec.secrets for name in ENDPOINTS)
    here = any(environ.get(name) for name in CREDENTIALS) and find_spec(LIBRARY)
    if not spec.snapshots.mirror or hidden or not here:
        return ()
    own = {name: value for name, value in environ.items() if name not in ENDPOINTS}
    found = look(spec, [sys.executable, *names.PYTHON[1:]], {**own, **spec.env})
    if found.refused:
        return (*found.warnings, f"{found.refused} (as seen from this machine, with your shell's credentials)")
    return found.warnings
