"""All situations of the corpus."""

from __future__ import annotations

from typing import Final

from tests.corpus.failing import FAILURES
from tests.corpus.healthy import HEALTHY
from tests.corpus.nasty import NASTY
from tests.corpus.situation import Situation
from tests.corpus.standing import STANDING

SITUATIONS: Final[tuple[Situation, ...]] = (*FAILURES, *STANDING, *HEALTHY, *NASTY)
