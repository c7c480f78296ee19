"""The job as its agents and ranks read it: the JSON document in ``KIT_SPEC``, which kitctl and the chart write.

A variable of a field's own wins over the document: ``KIT_SNAPSHOT_KEEP=5`` over ``snapshot_keep``. Images use that, and
runs without kitctl. Standard library only. ``tests/contract`` holds this and ``kitctl/render/environment.py`` equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_origin, get_type_hints

from kittrain.job.variables import EnvError
from kittrain.system import typed
from kittrain.system.decoders import MalformedError

Backend = Literal["auto", "nccl", "gloo"]
Rendezvous = Literal["hub", "c10d"]
Resume = Literal["", "exact", "state"]  # from earlier runs: not at all, in their order of the data, or in a new one
ExitCodes = Mapping[str, int]  # by outcome
HangTimeout = float | None  # seconds; infinite: never, None: the agent decides

VARIABLE: Final = "KIT_SPEC"
VERSION: Final = 1  # of the document's format; raised when a field changes its meaning
EXIT_CODES: Final = {"done": 0, "drained": 75, "retryable": 76, "fatal": 78}  # of agents; a document has its kind's
FIX: Final = "rebuild the image, or name one of kitctl's version with --image"


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What follows from the job alone, the same for all of its nodes. Defaults are for a run without a document.

    In the document, null and the empty text stand for the default.
    """

    kitctl_version: str | None = None
    job: str = "local"
    namespace: str = "default"
    min_nodes: int = 1
    max_nodes: int = 1
    procs_per_node: int = 1
    procs_by_node: Sequence[int] = ()  # of nodes that differ, by node index
    gpus_per_node: int = 0
    backend: Backend = "auto"
    interface: str | None = None  # of the collectives; None: the one that the route to node 0 uses
    rendezvous: Rendezvous = "hub"
    rendezvous_host: str = "127.0.0.1"
    rendezvous_port: int = 29400
    rendezvous_conf: Mapping[str, str] = field(default_factory=dict)  # as PET_RDZV_CONF
    owner: str | None = None  # <group>/<version>/<resource>/<name>, whose uid identifies the run; None: the run id does
    secret_file: Path | None = None
    secret_name: str | None = None  # of the Secret that the first agent fills; None: it is filled, or no agent may
    secret_required: bool = False
    exit_codes: ExitCodes = field(default_factory=lambda: EXIT_CODES)
    max_restarts: int = 3
    restart_in_place: bool = False  # the agent has a supervisor in its pod that starts it again
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: unknown
    hang_timeout: HangTimeout = None
    snapshot_dir: Path | None = None  # None: no snapshots
    snapshot_every: int = 100  # optimizer steps
    snapshot_seconds: int | None = None  # whichever comes first; None: steps alone count
    snapshot_keep: int = 3
    snapshot_keep_every: int | None = None  # steps; None: none is kept for good
    snapshot_keep_best: str = ""  # max:<metric> | min:<metric>
    snapshot_copy: bool = True  # False: training waits while its state is written, and no copy is made
    model_file: bool = True
    memory_every: int | None = None  # steps; None: no copies of the state in main memory
    resume: Resume = ""
    from_scratch: bool = False  # start from scratch if no snapshot is usable, instead of an error
    virtual_ranks: int = 0
    log_dir: Path | None = None  # per-rank logs that outlive the pod
    code: str | None = None  # digest of the folder that was sent with the job; None: none was
    code_store: Path | None = None  # where it is stored: an archive, or a folder
    workdir: Path | None = None  # where it is unpacked: the working folder
    outputs: str = ""  # a path in the working folder that is one folder for all nodes; empty: there is none
    requirements: str | None = None  # digest of the folder with the script's requirements; None: it has none
    requirements_store: Path | None = None  # where that is stored
    packages_dir: Path | None = None  # a cache for all jobs of a user; None: the snapshots have a folder for each run
    report: str | None = None  # file:<path> | configmap:<name>


def _hang_timeout(value: str | int) -> HangTimeout:
    return {"auto": None, "off": math.inf}[value] if isinstance(value, str) else float(value)


def _exit_codes(codes: Mapping[str, int]) -> Mapping[str, int]:
    if codes.keys() != EXIT_CODES.keys():
        raise MalformedError(f"not exactly {', '.join(EXIT_CODES)}: {', '.join(codes)}")
    return codes


RESUME: Final[Mapping[bool | str, Resume]] = {False: "", True: "exact", "state": "state"}
# Types that JSON does not have: the type of the document's value, and its conversion.
CONVERTED: Final[Mapping[Any, tuple[Any, Callable[[Any], Any]]]] = {
    Path | None: (str, Path),
    Resume: (bool | Literal["state"], RESUME.__getitem__),
    HangTimeout: (Literal["auto", "off"] | int, _hang_timeout),
    ExitCodes: (Mapping[str, int], _exit_codes),
}
FLAGS: Final = {"0": False, "1": True}


def read(kind: type[Any], environ: Mapping[str, str], base: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a class that are given: by a variable of their own, else by the document, else by ``base``.

    Args:
        kind: JobSpec, or a class derived from it.
        environ: the environment.
        base: values for fields, of their own types.

    Raises:
        EnvError: names the variable, or the field of the document, that is not what it should be.
    """
    given = document(environ) or {}
    values = {}
    for name, hint in _hints(kind).items():
        variable, value = f"KIT_{name.upper()}", given.get(name)
        if (text := environ.get(variable)) and get_origin(hint) is not Mapping:
            values[name] = _decode(f"{variable}={text!r}", hint, (FLAGS.get(text), _whole(text), text))
        elif value is not None and value != "":
            values[name] = _decode(f"{VARIABLE}: {name}", hint, (value,))
        elif name in base:
            values[name] = base[name]
    return values


def document(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The document by field, without its version; None without one.

    Raises:
        EnvError: it is not JSON, has another format, or asks for something that this version does not know.
    """
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        found: dict[str, Any] = typed.load(dict[str, Any], text.encode(errors="replace"))
    except MalformedError as error:
        raise EnvError(f"{VARIABLE}: {error}") from error
    version = found.pop("version", None)
    if type(version) is not int:
        raise EnvError(f"{VARIABLE}: version: not a whole number: {version!r}")
    kitctl = f"kitctl {found.get('kitctl_version') or ''}".strip()
    if version != VERSION:
        older = f"the image's kittrain is {'older' if version > VERSION else 'newer'} than {kitctl}"
        raise EnvError(f"{VARIABLE}: version {version}, and this kittrain reads {VERSION}: {older}; {FIX}")
    known = _hints(JobSpec)
    if extra := [name for name, value in found.items() if name not in known and value not in (None, "", False, 0)]:
        raise EnvError(f"{VARIABLE}: {', '.join(extra)}: not known: the image's kittrain is older than {kitctl}; {FIX}")
    return found


def _decode(where: str, hint: Any, candidates: Iterable[Any]) -> Any:
    """The first candidate that is of the type; a variable's text may stand for a flag, a number or itself."""
    kind, convert = CONVERTED.get(hint, (hint, lambda value: value))
    failure = MalformedError()
    for value in candidates:
        if value is None:
            continue
        try:
            return convert(typed.decode(kind, value))
        except MalformedError as error:
            failure = error
    raise EnvError(f"{where}: {failure}") from failure


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}
