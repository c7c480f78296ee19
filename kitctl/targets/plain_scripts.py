"""Scripts that save by themselves, in jobs whose nodes share no folder: what they save would be lost with its node.

Refused is what shows it: the script has a loop, and nothing that is sent with it names kitctl's library. If its loop is
elsewhere, as in a package of the image, that is a warning: the ranks look again when they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kitctl.base.errors import UsageError
from kitctl.code.own_loop import trains_alone
from kitctl.targets import Submission


def check(submission: Submission) -> tuple[str, ...]:
    """Refuse a job whose script trains by itself where only the library's snapshots have copies; returns warnings.

    Raises:
        UsageError: with the fix.
    """
    spec = submission.spec
    script = spec.script
    if not spec.snapshots.enabled or spec.snapshots.shared or not script or not script.endswith(".py"):
        return ()
    texts = dict(_texts(submission, script))
    alone = trains_alone(texts.pop(script), texts.values()) if script in texts else False
    what = (
        f"snapshots.storage: {spec.snapshots.storage} keeps the snapshots of kittrain.Training and kittrain.Run alone"
    )
    if alone:
        fix = "snapshots.storage: claim, or train with one of the two (docs/trainer.md); --no-checks submits it anyway"
        raise UsageError(f"{what}, and {script} trains without kittrain", fix=fix)
    warning = f"{what}; {script} does not import kittrain, and is refused if it trains without it"
    return (warning,) if alone is None else ()


def _texts(submission: Submission, script: str) -> Iterator[tuple[str, str]]:
    """The texts of the script and of all Python files that are sent with it, by path."""
    sources = submission.sources
    yield from ((path, text) for path, text in sources.files.items() if path.endswith(".py"))
    folder = sources.workdir.folder if sources.workdir else submission.folder
    paths = [*sources.workdir.tree.files] if sources.workdir else [script] if script not in sources.files else []
    yield from ((path, _read(folder / path)) for path in paths if path.endswith(".py") and (folder / path).is_file())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "kittrain"  # whoever sends it says why it cannot be read
