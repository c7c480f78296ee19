"""What the log of a supervisor says about one that does not run."""

from __future__ import annotations

import pytest

from kitctl.targets.local.supervisor_log import STARTED, STARTING, failure, stamped

TRACE = "Traceback (most recent call last):\n  File 'x'\nImportError: no luck\n"
TIME = "2026-01-02T03:04:05Z"
START, RUNS = f"{TIME} {STARTING}\n", f"{TIME} {STARTED}\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", ""),
        (START, ""),
        (START + RUNS, ""),
        (START + TRACE, "ImportError: no luck"),
        (START + TRACE + START, "ImportError: no luck"),  # the next one is on its way
        (START + TRACE + START + TRACE.replace("no luck", "again"), "ImportError: again"),
        (START + TRACE + START + RUNS, ""),
        (START + RUNS + TRACE, "ImportError: no luck"),  # it crashed later
        (START + RUNS + "UserWarning: from the fork server\n", ""),
        (START + RUNS + TRACE + f"{TIME} no fork server\n", ""),  # the fork server's
        (START + "Fatal Python error: no memory\n\n", "Fatal Python error: no memory"),
        (TRACE, "ImportError: no luck"),  # of an older version
    ],
)
def test_the_last_line_of_a_supervisor_that_failed(log: str, said: str) -> None:
    assert failure(log) == said


def test_a_line_begins_with_its_time() -> None:
    assert failure(stamped(STARTING) + TRACE + stamped("node 0: started")) == ""
    assert failure(stamped(STARTING) + TRACE + stamped(STARTING)) == "ImportError: no luck"
