"""The times of a rendezvous, by the names that torchrun has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kittrain.variables import EnvError


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Times of the rendezvous in seconds, under torchrun's names; other keys of PET_RDZV_CONF are torchrun's alone."""

    join_timeout: int = 900  # how long a node waits for the others
    last_call_timeout: int = 3  # how long an elastic job waits for more once it has its minimum
    keep_alive_interval: int = 1
    keep_alive_max_attempt: int = 5  # a node that is silent for this many intervals is dead
    read_timeout: int = 15  # longest single operation on the store

    @property
    def silence(self) -> int:
        """Seconds after which a kernel that does not answer is gone; as many lie between two pulses of an agent."""
        return self.keep_alive_interval * self.keep_alive_max_attempt

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> Knobs:
        """Read ``PET_RDZV_CONF``.

        Raises:
            EnvError: a time is not a positive whole number of seconds.
        """
        given = {knob.name: conf[knob.name] for knob in fields(cls) if knob.name in conf}
        for name, text in given.items():
            if not text.isdecimal() or int(text) == 0:
                raise EnvError(f"PET_RDZV_CONF: {name}={text!r} is not a positive number of seconds")
        return cls(**{name: int(text) for name, text in given.items()})
