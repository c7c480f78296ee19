"""Fill the templates of ``manifests/``, or those of the user's that replace them, with a job's values.

Why: decision 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yaml import YAMLError

from kitctl.base import yamlstrict
from kitctl.base.errors import UsageError
from kitctl.render.template_values import TemplateValues

if TYPE_CHECKING:
    import jinja2

SUFFIX: Final = ".yaml.j2"


def folder() -> Path:
    """``manifests/``: inside an installed package, next to it in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "manifests"
    return installed if installed.is_dir() else package.parent / "manifests"


def chart() -> Path | None:
    """The Helm chart, next to ``manifests/``; None: this installation has none."""
    found = folder().parent / "charts" / "training-job"
    return found if found.is_dir() else None


def fill(template: str, values: TemplateValues, folders: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """The objects of one template.

    Args:
        template: its file name, without the suffix.
        values: the job's values.
        folders: searched before ``manifests/``.

    Raises:
        UsageError: a template of ``folders`` is wrong.
    """
    import jinja2  # noqa: PLC0415 - half of the time that `kitctl render` takes

    try:
        text = _environment(tuple(folders)).get_template(template + SUFFIX).render(job=values)
        return yamlstrict.parse(text)
    except (jinja2.TemplateError, YAMLError) as error:
        if not folders:
            raise
        where = f"{getattr(error, 'filename', None) or template + SUFFIX}"
        line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        fix = f"compare it with the one in {folder()}"
        raise UsageError(f"{where}{line}: {error}", fix=fix) from error


def check_folder(given: Path) -> Path:
    """A folder of the user's templates, if each of them replaces one of ``manifests/``.

    Raises:
        UsageError: it is not a folder, has no template, or one that nothing would use.
    """
    found = {path.name for path in given.glob("*.j2")} if given.is_dir() else set()
    known = sorted(path.name for path in folder().glob("*" + SUFFIX))
    fix = f"copy one from {folder()} and change it: {', '.join(known)}"
    if not found:
        raise UsageError(f"{given} is not a folder with templates", fix=fix)
    if unknown := sorted(found.difference(known)):
        raise UsageError(f"{given}: nothing uses {', '.join(unknown)}", fix=fix)
    return given


def _quote(value: Any) -> str:
    """Every {{ value }} is written as JSON, so that no value can change the structure."""
    import jinja2  # noqa: PLC0415 - as above

    return str(value) if isinstance(value, jinja2.Undefined) else yamlstrict.quote(value)  # str() raises


@cache
def _environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - as above

    from kitctl.render.template_cache import user_cache  # noqa: PLC0415 - as above

    return jinja2.Environment(
        bytecode_cache=user_cache(),
        loader=jinja2.FileSystemLoader([*folders, folder()]),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - YAML, not HTML
    )
