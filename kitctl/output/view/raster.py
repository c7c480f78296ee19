"""An SVG picture as PNG, for chats and papers: by resvg, which the extra ``png`` installs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kitctl.base.errors import UsageError

SCALE: Final = 2  # pixels of a unit: sharp on today's screens
# The first of these that is installed is drawn; resvg leaves out text in a font that it does not find, without a word.
FONTS: Final = ("Inter", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans", "Noto Sans", "Roboto", "Ubuntu")
_PROBE: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'


def png(svg: str) -> bytes:
    """The picture on its light page, as a file's bytes.

    Raises:
        UsageError: the library, or a font, is not installed.
    """
    try:
        import resvg_py  # noqa: PLC0415 - an extra
    except ImportError as error:
        fix = "pip install resvg-py, which the extra kittrain[png] names; or give -o FILE.svg"
        raise UsageError("a PNG needs the package resvg-py", fix=fix) from error
    font = next(_installed(), None)
    if font is None:
        fix = "install one of them, such as Debian's package fonts-dejavu-core; or give -o FILE.svg"
        raise UsageError(f"no font for a PNG is installed: {', '.join(FONTS)}", fix=fix)
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=SCALE, sans_serif_family=font))


def _installed() -> Iterator[str]:
    """The fonts that can be drawn."""
    import resvg_py  # noqa: PLC0415 - as above

    empty = bytes(resvg_py.svg_to_bytes(svg_string=_PROBE.format("")))
    text = _PROBE.format('<text font-family="sans-serif" x="2" y="15">x</text>')
    for font in FONTS:
        if bytes(resvg_py.svg_to_bytes(svg_string=text, sans_serif_family=font)) != empty:
            yield font
