"""Decision 63: what scripts order by a set of texts is the same on all ranks, each of them a new interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SCRIPT = """
import os
rank = os.environ["RANK"]
with open(rank, "w") as file:
    print(rank, *set(map(str, range(40))), file=file)
"""


@pytest.mark.slow
def test_a_set_of_names_has_one_order_on_all_ranks(kit: Kit) -> None:
    script = kit.folder / "classes.py"
    script.write_text(SCRIPT)
    cold = ("-e", "KIT_WARM_WORKERS=0", "--set", "procsPerNode=2", "--nodes", "2")
    kit.run("submit", "--name", "sets", *cold, "--wait", script.name)
    ranks, *orders = zip(*((kit.folder / str(rank)).read_text().split() for rank in range(4)), strict=True)
    assert ranks == ("0", "1", "2", "3")
    assert len(orders) == 40
    assert all(len(set(order)) == 1 for order in orders)
