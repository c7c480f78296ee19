"""Causes in hangs that were judged as such, and in ranks that leave. Pure.

Where ranks are while none takes a step is a fact (``JobState.standstill``) and no cause: a healthy job looks the same.
"""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

HANGS: Final = Family(
    "Hangs and collectives",
    (
        Rule(
            r"^(?:.*?: )?hang: (.*busy \(it used.*)",
            "{0}",
            "raise policy.hangTimeout, or leave it `auto`, which waits for ranks that work",
        ),
        Rule(
            r"hang: (.*)",
            "{0}",
            "fix the named line: all ranks have to call the same collectives in the same order, and none may wait",
        ),
    ),
)
