"""Marks for all tests of this package: they start training, and need packages that ``make test`` does not install."""

from __future__ import annotations

from typing import Final

import pytest

from tools.test_frameworks import READY

MARKS: Final = [
    pytest.mark.slow,
    pytest.mark.frameworks,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not READY.exists(), reason="needs the environment of make test-frameworks"),
]
