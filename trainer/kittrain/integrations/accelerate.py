"""A loader that Accelerate has prepared, for ``Run.batches``: it continues within a pass.

loader = ResumableLoader(accelerator.prepare(loader))

The rest of a loop with Accelerate needs nothing of its own: ``Run`` takes prepared modules, optimizers and schedulers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from accelerate import skip_first_batches

from kittrain.integrations.cpu import configure_accelerate

configure_accelerate()  # a script imports this module before it makes an Accelerator, which reads the variables


class ResumableLoader:
    """The batches of a prepared loader, with a position that can be saved: batches before it are not loaded.

    Args:
        loader: from ``accelerator.prepare``.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._taken = 0  # batches of this pass on this rank
        self._pass = 0
        self._start: Any = None  # state of the sampler's generator at the start of the pass
        self._restored: Any = None  # the same, of the pass that is to be continued

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """The batches from the position on; the first one is loaded at once, as later draws must not precede it."""
        self._loader.iteration = self._pass  # Accelerate's count, on which the order of a seeded sampler depends
        start, self._restored = self._restored, None
        if self._taken and start is None:
            start = self._start
        if self.generator is not None and start is not None:
            self.generator.set_state(start)
        self._start = self._now()
        loader = skip_first_batches(self._loader, self._taken) if self._taken else self._loader
        batches = iter(loader)
        first = list(_take_one(batches))
        return self._counted(chain(first, batches))

    def state_dict(self) -> dict[str, Any]:
        """The position, in batches of all ranks; between two passes it is the start of the next one."""
        start = self._start if self._taken else self._now()
        return {"pass": self._pass, "taken": self._taken * self._ranks, "start": start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next pass at a position, on any number of ranks."""
        self._pass, self._taken, self._restored = state["pass"], state["taken"] // self._ranks, state["start"]

    @property
    def generator(self) -> Any:
        """The sampler's, which all ranks keep equal; ``Run`` saves it between two passes. None: it has none."""
        return getattr(self._loader, "synchronized_generator", None)

    def _now(self) -> Any:
        if self._restored is not None:
            return self._restored
        return None if self.generator is None else self.generator.get_state()

    @property
    def _ranks(self) -> int:
        """Ranks that share the batches."""
        return int(getattr(getattr(self._loader, "batch_sampler", None), "num_processes", 1))

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._taken += 1
            yield batch
        self._taken, self._pass = 0, self._pass + 1


def _take_one(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        return
