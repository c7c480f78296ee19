"""Whether a script trains without the library: what shows it, and what leaves it open."""

from __future__ import annotations

import pytest

from kitctl.code.own_loop import trains_alone

LOOP = "import torch\nfor x in data:\n    loss(model(x)).backward()\n    optimizer.step()\n"


@pytest.mark.parametrize(
    ("script", "others", "alone"),
    [
        (LOOP, (), True),
        (LOOP, ("import torch\n",), True),
        (f"from kittrain import Run\n{LOOP}", (), False),
        (LOOP, ("from kittrain import Run\n",), False),  # a module that it may import
        ("from ours import main\nmain()\n", (), None),
        ("import lightning\n", (), None),
        (f"import mykittrains\n{LOOP}", (), True),
    ],
)
def test_a_script_is_known_by_its_loop_and_the_librarys_name(
    script: str,
    others: tuple[str, ...],
    alone: bool | None,  # noqa: FBT001 - what is expected
) -> None:
    assert trains_alone(script, others) is alone
