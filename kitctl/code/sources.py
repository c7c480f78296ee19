"""The files that are sent with a job: which ones, and whether they may leave this machine.

What lives here: a script given by relative path, the paths, globs and folders of ``send``, and the choice between these
and a whole folder (``workdir``). The former end up in a ConfigMap as text, so nothing is sent that was not named: no
hidden file, and no target of a link outside the folder. What is sent of requirements is decided in ``requirements``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kitctl.code import trainer_package
from kitctl.code.code_tree import SentFolder, Sources
from kitctl.code.trainer_package import TrainerPackage
from kitctl.code.workdir.patterns import below, matches, wrong
from kitctl.spec.job_spec import JobSpec
from kitjob.record import replace

SOURCES_LIMIT: Final = 900 * 1024  # bytes; they are sent in a ConfigMap, which holds 1 MiB


def sources(spec: JobSpec, folder: Path) -> Sources:
    """The files that are sent with a job that is submitted from ``folder``.

    Raises:
        SpecError: a file is missing, outside the folder or hidden, or they are too large together; without ``workdir``
            also if one is not text; the requirements are not understood.
    """
    requirements = None
    if spec.requirements.file:
        from kitctl.code.requirements import collecting  # noqa: PLC0415 - as below

        requirements = collecting.collect(spec.requirements, folder)
    if spec.workdir:
        from kitctl.code.workdir.collecting import collect  # noqa: PLC0415 - most verbs and jobs do without

        workdir = collect(folder / Path(spec.workdir).expanduser(), spec.send)
        _require_script(spec, workdir, folder)
        _require_folder_for_outputs(spec.outputs, workdir)
        return Sources(workdir=workdir, requirements=requirements, trainer=_trainer(spec))
    return Sources(files=_files(spec, folder), requirements=requirements, trainer=_trainer(spec))


def in_place(spec: JobSpec, folder: Path) -> JobSpec:
    """The job as it runs on this machine, where a script may be above the folder: by its absolute path then."""
    script = spec.script
    if not script or spec.workdir or Path(script).is_absolute() or ".." not in Path(script).parts:
        return spec
    path = (folder / script).resolve()
    return replace(spec, command=(str(path), *spec.command[1:])) if path.is_file() else spec


def _trainer(spec: JobSpec) -> TrainerPackage | None:
    return None if spec.trainer == "image" else trainer_package.load()


def _files(spec: JobSpec, folder: Path) -> dict[str, str]:
    """The script, if it is given by relative path, and what ``send`` names; text by relative path."""
    found: dict[Path, str] = {}
    if spec.script and not Path(spec.script).is_absolute():
        found[_script(folder, spec.script)] = "command"
    for number, pattern in enumerate(spec.send):
        field = f"send[{number}]"
        found |= dict.fromkeys(matches(folder, pattern, field), field)
    for path, field in found.items():
        _require_inside(path, folder, field)
    _require_small(found)
    return {path.relative_to(folder).as_posix(): _text(path, field) for path, field in sorted(found.items())}


def _require_script(spec: JobSpec, workdir: SentFolder, folder: Path) -> None:
    """A relative script has to be one of the files that are sent."""
    script = spec.script
    if not script:
        return
    if Path(script).is_absolute():
        if Path(script).resolve().is_relative_to(workdir.folder.resolve()):  # it would not be the copy that runs
            inside = Path(script).resolve().relative_to(workdir.folder.resolve())
            raise wrong("command", f"{script} is in the workdir {workdir.folder}", f"write {inside}")
        return
    path = below(workdir.folder, script, "command")
    if path.relative_to(workdir.folder).as_posix() in workdir.tree.files.keys() | workdir.tree.links.keys():
        return
    if path.is_file():
        raise wrong("command", f"{script} is in {workdir.folder}, but is not sent", f"name it: --send {script}")
    inside = (folder / script).resolve()
    moved = inside.is_file() and inside.is_relative_to(workdir.folder.resolve())
    fix = f"write {inside.relative_to(workdir.folder.resolve())}" if moved else "give a path from that folder"
    raise wrong("command", f"{script} does not exist in the workdir {workdir.folder}", fix)


def _require_folder_for_outputs(outputs: str, workdir: SentFolder) -> None:
    """What is sent must leave the place of ``outputs`` to a folder: agents would refuse to replace it."""
    ways = [] if not outputs else [way.as_posix() for way in (*Path(outputs).parents, Path(outputs))]
    for way in ways:
        for what, sent in (("a link", workdir.tree.links), ("a file", workdir.tree.files)):
            if way in sent:
                fix = "name another folder, or list it in .kitignore"
                raise wrong("outputs", f"{way} is {what} in {workdir.folder}", fix)


def _script(folder: Path, script: str) -> Path:
    path = below(folder, script, "command")
    if not path.exists():
        fix = "give a path from this folder, or an absolute path where the ranks run"
        if script.startswith("python"):
            fix = "begin with the script, which each rank runs with Python: command: [train.py]"
        raise wrong("command", f"{script} does not exist in {folder}", fix)
    if not path.is_file():
        raise wrong("command", f"{script} is not a file", "name a script; send takes folders")
    return path


def _require_inside(path: Path, folder: Path, field: str) -> None:
    """A link may only lead to a file of the folder that is not hidden."""
    real, root = path.resolve(), folder.resolve()
    if real == root / path.relative_to(folder):
        return
    name = path.relative_to(folder)
    if not real.is_relative_to(root) or any(part.startswith(".") for part in real.relative_to(root).parts):
        raise wrong(field, f"{name} is a link to {real}, which is not sent", "name the file itself, or copy it")


def _require_small(found: dict[Path, str]) -> None:
    for path, field in found.items():
        if path.exists() and not path.is_file():
            raise wrong(field, f"{path.name} is not a file", "only text files can be sent")
    size = sum(path.stat().st_size for path in found if path.exists())
    if size > SOURCES_LIMIT:
        what = f"{size // 1024} KiB of files are more than the {SOURCES_LIMIT // 1024} that can be sent with a job"
        raise wrong("send", what, "send fewer files, the folder with --workdir, or put them on a volume")


def _text(path: Path, field: str) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        what = f"{path.name} cannot be sent with the job: {error}"
        raise wrong(field, what, "only text files can be sent so; --workdir sends a folder with all files") from error
