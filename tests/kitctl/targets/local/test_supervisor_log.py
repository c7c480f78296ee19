"""What the log of a supervisor says about one that does not run."""

from __future__ import annotations

import pytest

from kitctl.targets.local.supervisor_log import ENDED, STARTED, STARTING, failure, interrupted, stamped

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


@pytest.mark.parametrize(
    ("log", "last"),
    [
        ("", ""),
        (START + RUNS, RUNS.strip()),
        (START + RUNS + f"{TIME} node 0: started\nnoise of torch\n", f"{TIME} node 0: started"),
        (START + RUNS + f"{TIME} {ENDED}\n", ""),
        (START + RUNS + START + RUNS + f"{TIME} {ENDED}\n", ""),
        (START + RUNS + f"{TIME} {ENDED}\n" + START + RUNS, RUNS.strip()),
        (START + RUNS + TRACE, ""),  # a failure, which is told as such
        (START + TRACE, ""),
        (START, ""),  # it was about to start
    ],
)
def test_the_last_line_of_a_supervisor_that_was_killed(log: str, last: str) -> None:
    assert interrupted(log) == last


def test_a_line_begins_with_its_time() -> None:
    assert failure(stamped(STARTING) + TRACE + stamped("node 0: started")) == ""
    assert failure(stamped(STARTING) + TRACE + stamped(STARTING)) == "ImportError: no luck"
