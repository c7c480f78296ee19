"""Seeds, saves and restores the global random number generators."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import torch

RngState = dict[str, Any]  # tensors and plain values only, for torch.load(weights_only=True)


def seed_all(seed: int) -> None:
    """Seed every global generator: torch's on all devices, Python's, and numpy's if it is imported."""
    torch.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def seed_cpu(seed: int) -> None:
    """Seed the global generators of the CPU only: seeding the GPUs' would take ``torch.manual_seed`` 0.2 ms."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


@contextmanager
def preserved() -> Iterator[None]:
    """Context manager that restores the CPU's global generators on exit."""
    numpy = sys.modules.get("numpy")
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        if numpy:
            numpy.random.set_state(before[2])


class DrawWatch:
    """Context manager that finds out whether random numbers are drawn from the CPU's global generators, and undoes it.

    Not reentrant. One object serves all batches of a process: it knows what numpy's generator was after the last one.

    Attributes:
        found: whether any were drawn; known on exit.
    """

    def __init__(self) -> None:
        self.found = False
        self._numpy = _NumpyState()

    def __enter__(self) -> Self:
        self._torch, self._python = torch.get_rng_state(), random.getstate()
        self._numpy.remember()
        return self

    def __exit__(self, *_: object) -> None:
        self.found = self._numpy.undo()
        if not torch.equal(self._torch, torch.get_rng_state()):
            self.found = True
            torch.set_rng_state(self._torch)
        if random.getstate() != self._python:
            self.found = True
            random.setstate(self._python)


class _NumpyState:
    """The state of numpy's global generator, compared where it is: numpy takes 70 us to return it.

    The generator keeps back every other normal number, and drawing that one changes nothing in the Mersenne Twister's
    memory. So numpy is asked as long as one may be kept back.
    """

    KEYS: Final = 4 * 624  # bytes of mt19937_state: the keys; an int follows, the position

    def __init__(self) -> None:
        self._memory = b""
        self._state: Any = None  # as numpy returned it; None: numpy is not there, or ``_memory`` is all of the state

    def remember(self) -> None:
        """Called before numbers may be drawn."""
        memory = self._read()
        if not memory or memory != self._memory or self._state:
            self._state = self._ask()
            if memory and not self._state["has_gauss"]:  # no number is kept back
                self._state = None
        self._memory = memory

    def undo(self) -> bool:
        """Restore the remembered state; returns whether numbers were drawn since."""
        if self._state is None:
            if self._read() == self._memory:  # also if there is no numpy
                return False
            keys, position = self._memory[: self.KEYS], self._memory[self.KEYS :]
            before = "MT19937", memoryview(keys).cast("I").tolist(), int.from_bytes(position, sys.byteorder), 0, 0.0
        else:
            before = self._state
            if self._memory and _plain(before) == _plain(self._ask()):
                return False  # without its memory, another generator was set: it may have been used
        sys.modules["numpy"].random.set_state(before)
        return True

    @staticmethod
    def _ask() -> Any:
        numpy = sys.modules.get("numpy")
        return numpy.random.get_state(legacy=False) if numpy else None

    def _read(self) -> bytes:
        """The memory of the Mersenne Twister; empty without numpy, or if the script has set another generator."""
        numpy = sys.modules.get("numpy")
        generator: Any = numpy.random.get_bit_generator() if numpy else None
        if type(generator).__name__ != "MT19937":
            return b""
        return ctypes.string_at(generator.ctypes.state_address, self.KEYS + 4)


def _plain(state: Any) -> Any:
    """A state of numpy's Mersenne Twister that can be compared."""
    return state["state"]["key"].tolist(), state["state"]["pos"], state["has_gauss"], state["gauss"]


def capture() -> RngState:
    """Get the state of every global generator of this process."""
    state: RngState = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    if numpy := sys.modules.get("numpy"):
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def restore(state: RngState) -> None:
    """Set every global generator to a captured state."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(state["numpy"])
