"""The job files of docs/fabrics.md, by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[1] / "docs" / "fabrics.md"
_BLOCK: Final = re.compile(r"^```yaml\n# (\S+)\.yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)

RECIPES: Final[dict[str, str]] = dict(_BLOCK.findall(_PAGE.read_text(encoding="utf-8")))
EXPECTED: Final = 9  # so that none is skipped
assert len(RECIPES) == EXPECTED

# The strictest Pod Security level that admits each, by the page's table.
LEVELS: Final = ("restricted", "baseline", "privileged")
_ROW: Final = re.compile(rf"^\| `(\S+)\.yaml` \| `({'|'.join(LEVELS)})` \|", re.MULTILINE)
LEVEL: Final[dict[str, str]] = dict(_ROW.findall(_PAGE.read_text(encoding="utf-8")))
assert LEVEL.keys() == RECIPES.keys()
