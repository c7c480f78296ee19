"""Causes in scripts, and in what they need: files, arguments, packages, snapshots of another run. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

SCRIPTS: Final = Family(
    "Scripts, files and packages",
    (
        Rule(
            r"SnapshotError: .*?(its model has other parameters)",
            "the snapshots that it should resume from are of another model",
            "another --name for this model, or --from-scratch",
        ),
        Rule(
            r"FileNotFoundError: .*?No such file or directory: '(/[^']*)'",
            "the node has no {0}",
            "mount it where the script looks for it (--volume), or send it: --workdir",
            local="create it, or give the script another path: on this machine each node sees the same files",
        ),
        Rule(
            r"PermissionError: .*?: '([^']*)'",
            "the script may not use {0}",
            "write to the snapshot folder or to /tmp, or set security.runAsUser",
            local="see who owns it; or write to another folder",
        ),
        Rule(
            r"the requirements cannot be installed|No matching distribution found for (\S+)",
            "",
            "correct the name or the version: pip index versions NAME lists those that there are",
        ),
        Rule(
            r"ProcessExitedException: process \d+ terminated with exit code",
            "",
            "the process that the script started has printed its own error: see the last lines",
        ),
    ),
)
