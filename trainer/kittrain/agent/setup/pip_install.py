"""Installs requirements into a folder with pip, besides the packages of this interpreter, none of which it replaces.

``pip install --target`` alone would install torch again for each requirement that needs it. So pip first says what it
would add to the installed packages, and then installs just that. ``python -m kittrain.agent.setup.pip_install ARGS`` is
pip, killed when its parent dies.

Why: decision 41.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kittrain.system.parent_death import die_with_parent

REQUIREMENTS: Final = "requirements.txt"  # in the folder that is sent
CONSTRAINTS: Final = "constraints.txt"  # in the folder that is sent
DECLARED: Final = ".declared"  # in it, for pip alone: metadata of packages that are never replaced
OLDEST_PIP: Final = (22, 2)  # the first with --report
# Never replaced: torch, what is built for one version of it, and this package.
KEPT: Final = frozenset({"torch", "torchvision", "torchaudio", "triton", "numpy", "kittrain"})
KEPT_PREFIX: Final = "nvidia-"
OPTION: Final = re.compile(r"--(index-url|extra-index-url|find-links|no-index|trusted-host|no-binary|only-binary)\b")
PIP: Final = (sys.executable, "-P", "-m", "kittrain.agent.setup.pip_install", "install")
ENVIRON: Final = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_NO_COLOR": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # a separate folder breaks nothing
    "PIP_USER": "0",
}
# Options that an image or a user may have for other uses of pip. Without a cache it would download all twice.
DROPPED: Final = frozenset(
    {
        *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PIP_IGNORE_INSTALLED"),
        *("PIP_NO_CACHE_DIR", "PIP_QUIET", "PIP_DRY_RUN"),
    }
)
SHOWN: Final = ("Downloading ", "Building wheel", "Cloning ", "WARNING: Retrying")  # lines that show progress
# Lines of pip that do not explain an error.
NOISE: Final = (
    *SHOWN,
    *("Looking in ", "Collecting ", "Processing ", "Requirement already satisfied", "Using cached", "Saved ", "["),
    *(
        "To fix this",
        "1. ",
        "2. ",
        "note:",
        "hint:",
        "INFO:",
        "ERROR: ResolutionImpossible",
        "  Downloading",
        "  Using cached",
    ),
)
# Pip's messages about a network, an index or a disk that may recover.
TRANSIENT: Final = re.compile(
    r"connection broken by|Max retries exceeded|timed out|Connection(Reset|Refused)?Error|Could not fetch URL"
    r"|Temporary failure in name resolution|HTTP error (429|5\d\d)|(429|5\d\d) (Server|Client) Error"
    r"|No space left on device",
)
RETRYING: Final = re.compile(r"^WARNING: (Retrying \(Retry\(.*?\)\) after )?|^ERROR: ")
REASON_LINES: Final = 12
KEPT_LINES: Final = 400


class RequirementsError(Exception):
    """The requirements cannot be installed, however often it is tried."""


class RequirementsUnavailableError(Exception):
    """The requirements could not be installed now; a later attempt may succeed."""


def installed_packages() -> dict[str, str]:
    """The version of each installed package, by normalized name."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        name, version = one.metadata["Name"], one.version
        if name and version:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)  # the first on the path counts
    return dict(sorted(found.items()))


def install(sent: Path, folder: Path, installed: Mapping[str, str], log: Callable[[str], None]) -> list[str]:
    """Install what the requirements need besides the installed packages.

    Args:
        sent: the folder with ``requirements.txt``, and what it names.
        folder: an existing folder for the packages.
        installed: the interpreter's own packages, as ``installed_packages`` returns them.
        log: called with lines of pip that show its progress.

    Returns:
        The added packages, as ``name-version``.

    Raises:
        RequirementsError: there is no pip, or it says that they cannot be installed.
        RequirementsUnavailableError: a network, an index or a disk failed.
    """
    _check_pip(installed)
    kept = {name: version for name, version in installed.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
    constraints = sent / ".constraints.txt"
    constraints.write_text(_constraints(kept, sent / CONSTRAINTS), "utf-8")
    _declare(kept, sent / DECLARED)
    report = sent / ".report.json"
    given = sent / REQUIREMENTS
    _pip(["--dry-run", "--report", str(report), "-r", str(given), "-c", str(constraints)], sent, log)
    added = json.loads(report.read_text("utf-8"))["install"]
    if added:
        chosen = sent / ".chosen.txt"
        chosen.write_text("\n".join([*_options(given), *map(_line, added), ""]), "utf-8")
        _pip(["--no-deps", "--target", str(folder), "-r", str(chosen)], sent, log)
    return sorted(f"{one['metadata']['name']}-{one['metadata']['version']}" for one in added)


def reason_of(lines: Iterable[str]) -> str:
    """The reason of a failure from pip's output, in one line; of a failed network only that. Pure."""
    lines = [*lines]
    if failed := [line for line in lines if TRANSIENT.search(line)]:
        return RETRYING.sub("", failed[-1].strip())
    words = [line.strip().removeprefix("ERROR: ") for line in lines if line.strip() and not line.startswith(NOISE)]
    message = "; ".join(dict.fromkeys(word.rstrip(".") for word in words[-REASON_LINES:])).replace(":;", ":")
    kept = "(constraint)" in message
    return message + ("; torch and what belongs to it stay as they are in the image" if kept else "")


def _check_pip(installed: Mapping[str, str]) -> None:
    if importlib.util.find_spec("pip") is None:
        fix = f"{sys.executable} -m ensurepip, or an image that has it"
        raise RequirementsError(f"requirements: {sys.executable} has no pip; fix: {fix}")
    version = installed.get("pip", "")
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found and found < OLDEST_PIP:
        oldest = ".".join(map(str, OLDEST_PIP))
        raise RequirementsError(f"requirements: pip {version} is too old; fix: an image with pip {oldest} or later")


def _constraints(kept: Mapping[str, str], given: Path) -> str:
    """The job's own constraints, and those that keep torch and what belongs to it as installed."""
    own = given.read_text("utf-8").splitlines() if given.is_file() else []
    return "\n".join([*own, *(f"{name}=={version}" for name, version in kept.items()), ""])


def _declare(kept: Mapping[str, str], folder: Path) -> None:
    """Have pip see these packages without what they need: that is the image's business, and works as it is.

    A distribution's own torch may declare what its other packages do not fulfil to the letter; pip would replace them.
    """
    for name, version in kept.items():
        record = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        record.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (record / "METADATA").write_text(metadata, "utf-8")


def _options(requirements: Path) -> list[str]:
    """The options for package indexes, which the build of a package may need, too."""
    return [line for line in requirements.read_text("utf-8").splitlines() if OPTION.match(line)]


def _line(found: Mapping[str, Any]) -> str:
    """A requirement of exactly what pip has chosen."""
    place = found["download_info"]
    url = place["url"]
    if vcs := place.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    digest = place.get("archive_info", {}).get("hashes", {}).get("sha256")
    parts = [f"sha256={digest}"] if digest else []
    parts += [f"subdirectory={place['subdirectory']}"] if "subdirectory" in place else []
    fragment = "#" + "&".join(parts) if parts else ""
    return f"{found['metadata']['name']} @ {url.partition('#')[0]}{fragment}"


def _pip(options: Sequence[str], folder: Path, log: Callable[[str], None]) -> None:
    """Run pip; kills it when this is interrupted."""
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    own = {name: text for name, text in os.environ.items() if name not in DROPPED}
    path = os.pathsep.join(filter(None, (str(folder / DECLARED), own.get("PYTHONPATH"))))
    with subprocess.Popen(
        [*PIP, *options],
        cwd=folder,
        env=own | ENVIRON | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.lstrip().startswith(SHOWN):
                    log(f"pip: {line.strip()}")
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        _fail(lines, code, log)


def _fail(lines: Sequence[str], code: int, log: Callable[[str], None]) -> None:
    for line in [*lines][-REASON_LINES * 3 :]:
        log(f"pip: {line}")
    reason = f"the requirements cannot be installed: {reason_of(lines) or f'pip ended with {code}'}"
    raise RequirementsUnavailableError(reason) if code < 0 or _is_transient(lines) else RequirementsError(reason)


def _is_transient(lines: Iterable[str]) -> bool:
    return any(TRANSIENT.search(line) for line in lines)


if __name__ == "__main__":
    die_with_parent(os.getppid())
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
