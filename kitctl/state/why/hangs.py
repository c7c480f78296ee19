"""Causes in hangs that were judged as such, and in ranks that leave. Pure.

Where ranks are while none takes a step is a fact (``JobState.standstill``) and no cause: a healthy job looks the same.
"""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

HANGS: Final = Family(
    "Hangs and collectives",
    "Running",
    (
        Rule(
            r"^(?:.*?: )?hang: (.*busy \(it used.*)",
            "{0}",
            "raise policy.hangTimeout, or leave it `auto`, which waits for ranks that work",
            seen="hang: rank 2 (node 1) has been in step 30 for 10 min, busy (it used 0.9 cores)",
        ),
        Rule(
            r"(rank \d+) lost its peers \(.*?(?:[Tt]imed out|timeout).*",
            "{0} timed out in a collective, again and again: the other ranks do not come in time",
            "see what they do meanwhile: kitctl stacks; if they work, give init_process_group a longer timeout",
        ),
        Rule(
            r"hang: (.*)",
            "{0}",
            "fix the named line: all ranks have to call the same collectives in the same order, and none may wait",
            seen="hang: rank 2 (node 1) has been in the forward pass of step 30 for 30 s, at train.py:12",
        ),
    ),
)
