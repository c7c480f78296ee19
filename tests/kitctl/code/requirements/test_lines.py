"""Requirements files are parsed as pip parses them, including the files that they name."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from kitctl.base.errors import SpecError
from kitctl.code.requirements.lines import logical_lines, read_file

FILES = {
    "requirements.txt": (
        "# what we need\n\nalpha>=1 # comment\nbeta[extra]==2.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
        "-r more/base.txt\n--constraint=limits.txt\n-i https://index/simple\n--no-binary :all:\n-f wheels\n"
        "gamma @ https://host/gamma-1.0-py3-none-any.whl\ndelta ; python_version < '4'\n"
    ),
    "more/base.txt": "epsilon~=1.0\n-fwheels\n--find-links https://host/links\n-r ../last.txt\n",
    "last.txt": "zeta\n",
    "limits.txt": "alpha<3\n",
}


def read(path: PurePath) -> str:
    return FILES[str(path).replace("more/../", "")]


def test_a_file_and_those_that_it_includes_become_one_list() -> None:
    found = read_file(PurePath("requirements.txt"), read)
    assert found.lines == [
        "alpha>=1",
        "beta[extra]==2.0     --hash=sha256:00     --hash=sha256:11",
        "epsilon~=1.0",
        "zeta",
        "gamma @ https://host/gamma-1.0-py3-none-any.whl",
        "delta ; python_version < '4'",
    ]
    assert found.constraints == ["alpha<3"]
    assert found.options == ["--index-url https://index/simple", "--no-binary :all:"]
    assert found.links == ["more/wheels", "https://host/links", "wheels"]


def test_a_continued_line_has_the_number_of_its_first_line() -> None:
    assert [*logical_lines("a \\\nb\n# c\\\nd\ne\\")] == [(1, "a b"), (4, "d"), (5, "e")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-e .", "--workdir, or its wheel"),
        ("--editable git+https://host/repo#egg=x", "cannot be sent"),
        ("./package", "is a path on this machine; fix: put its wheel into a folder"),
        ("dist/thing-1.0-py3-none-any.whl", "is a path on this machine"),
        ("thing @ file:///home/me/thing.whl", "is a path on this machine"),
        ("-r https://host/requirements.txt", "is not on this machine"),
        ("-r file.txt", "names itself again"),
        ("--prefix /usr", "cannot be sent"),
        ("=1.0", "is not a requirement"),
        ("?", "is not a requirement"),
        ("-", "is not an option"),
    ],
)
def test_what_cannot_be_sent_is_an_error_with_its_line(line: str, words: str) -> None:
    with pytest.raises(SpecError) as raised:
        read_file(PurePath("file.txt"), lambda _path: f"numpy\n{line}\n")
    message = str(raised.value)
    assert words in message
    assert message.startswith("invalid job:\n  requirements.file: file.txt, line 2: ")


def test_a_fragment_of_a_url_is_no_comment() -> None:
    urls = ["alpha @ https://host/alpha-1.0-py3-none-any.whl#sha256=00", "beta @ git+https://host/beta.git@v1#egg=beta"]
    text = f"{urls[0]}\n{urls[1]} # because\n#gamma\n"
    assert [line for _, line in logical_lines(text)] == urls
    assert read_file(PurePath("requirements.txt"), lambda _: text).lines == urls
