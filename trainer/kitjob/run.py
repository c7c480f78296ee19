"""What agents and ranks are told about one run besides its job: where things are on this target.

Paths are those of the machine or the container in which agents run.
"""

from __future__ import annotations

from collections.abc import Mapping

from kitjob.names import EXIT_CODES, RENDEZVOUS_PORT
from kitjob.record import Record


class Code(Record):
    """The folder of the job's code."""

    digest: str
    """Of its tree."""
    store: str
    """Where it is stored: an archive, or a folder."""
    workdir: str
    """Where it is unpacked: the working folder."""


class Packages(Record):
    """The folder with the script's requirements."""

    digest: str
    """Of its tree."""
    store: str
    """Where it is stored: an archive, or a folder."""
    cache: str = ""
    """Where packages are installed for all jobs of a user. Empty: the snapshots have a folder for each run."""


class RunFacts(Record):
    """What the target fills. Defaults are those of a run without a document; an empty text is none."""

    kitctl: str = ""
    """Version of the kitctl, or of the chart, that wrote the document."""
    rendezvous_host: str = "127.0.0.1"
    """Where node 0 serves the rendezvous."""
    rendezvous_port: int = RENDEZVOUS_PORT
    """On this port."""
    exit_codes: Mapping[str, int] = EXIT_CODES
    """Of agents, by outcome."""
    owner: str = ""
    """``<group>/<version>/<resource>/<name>``, whose uid identifies the run. Empty: the run id does."""
    secret_file: str = ""
    """The run's secret."""
    secret_name: str = ""
    """The Secret that the first agent fills. Empty: it is filled, or no agent may."""
    restart_in_place: bool = False
    """Whether the agent has a supervisor in its pod that starts it again."""
    log_dir: str = ""
    """Per-rank logs that outlive the pod."""
    report: str = ""
    """``file:<path>`` or ``configmap:<name>``."""
    code: Code | None = None
    """The folder of its code. None: none was sent."""
    packages: Packages | None = None
    """The script's requirements. None: it has none."""

    def __post_init__(self) -> None:
        """Check the outcomes.

        Raises:
            TypeError: an outcome has no exit code, or there is one of no outcome.
        """
        if self.exit_codes.keys() != EXIT_CODES.keys():
            raise TypeError(f"exitCodes: not exactly {', '.join(EXIT_CODES)}: {', '.join(self.exit_codes)}")
