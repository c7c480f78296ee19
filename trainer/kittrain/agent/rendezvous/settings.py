"""The rendezvous' timeouts, under the names that torchrun uses for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kittrain.job.variables import EnvError


@dataclass(frozen=True, kw_only=True)
class RendezvousSettings:
    """Timeouts in seconds, under torchrun's names; torchrun alone reads the other keys of PET_RDZV_CONF."""

    join_timeout: int = 900  # how long a node waits for the others
    last_call_timeout: int = 3  # how long an elastic job waits for more nodes once it has its minimum
    keep_alive_interval: int = 1
    keep_alive_max_attempt: int = 5  # a node that misses this many keep-alives is lost
    read_timeout: int = 15  # longest single operation on the store

    @property
    def keep_alive_timeout(self) -> int:
        """Seconds after which an unresponsive kernel counts as gone; also the interval of an agent's heartbeats."""
        return self.keep_alive_interval * self.keep_alive_max_attempt

    @classmethod
    def from_conf(cls, conf: Mapping[str, str]) -> RendezvousSettings:
        """Parse ``PET_RDZV_CONF``.

        Raises:
            EnvError: a timeout is not a positive whole number of seconds.
        """
        given = {field.name: conf[field.name] for field in fields(cls) if field.name in conf}
        for name, text in given.items():
            if not text.isdecimal() or int(text) == 0:
                raise EnvError(f"PET_RDZV_CONF: {name}={text!r} is not a positive number of seconds")
        return cls(**{name: int(text) for name, text in given.items()})
