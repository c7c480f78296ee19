"""Imports of local files that are not sent are found before the job is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.code.code_tree import Sources
from kitctl.code.workdir.collecting import collect
from kitctl.code.workdir.imports import import_warnings, unsent_imports
from kitctl.spec.job_spec import JobSpec

FOLDER = {
    "train.py": "import os, torch\nimport model\nfrom lib.data import loader\nfrom lib import tools\n",
    "model.py": "import lib.deep.layer as layer\n",
    "lib/__init__.py": "",
    "lib/data.py": "from . import shared\nfrom .deep import layer\n",
    "lib/shared.py": "from ..outside import x\n",
    "lib/tools.py": "def f():\n    import late\n",
    "lib/deep/layer.py": "",
    "late.py": "",
    "unused.py": "",
    "torch_like.py": "",
}


def unsent(command: tuple[str, ...], *sent: str, **files: str) -> set[str]:
    there = FOLDER | {name.replace("__", "/") + ".py": text for name, text in files.items()}
    return {one.path for one in unsent_imports(command, sent, there.get)}


def test_direct_and_indirect_imports_are_found() -> None:
    modules = {"model.py", "late.py", "lib/deep/layer.py"}
    modules |= {f"lib/{name}.py" for name in ("__init__", "data", "shared", "tools")}
    assert unsent(("train.py",), "train.py") == modules
    assert unsent(("./train.py",), "train.py") == modules
    assert unsent(("train.py",), "train.py", *FOLDER) == set()
    assert unsent(("train.py",), "train.py", "model.py", *(modules - {"late.py"})) == {"late.py"}


def test_a_script_in_a_folder_imports_from_there() -> None:
    files = {"src__run": "import near\nimport model\n", "src__near": ""}
    assert unsent(("src/run.py",), "src/run.py", **files) == {"src/near.py"}


def test_a_module_imports_from_the_folder_itself() -> None:
    files = {"pkg__run": "from pkg import near\nfrom . import also\n", "pkg__near": "", "pkg__also": ""}
    assert unsent(("-m", "pkg.run"), **files) == {"pkg/run.py", "pkg/near.py", "pkg/also.py"}
    assert unsent(("-m", "kittrain.workloads.digits")) == set()


@pytest.mark.parametrize(
    "text",
    [
        "if TYPE_CHECKING:\n    import model\n",
        "import model as = 3\n",
        "from ....... import model\n",
        "\0",
        "x = 'import model'",
    ],
)
def test_other_statements_are_skipped(text: str) -> None:
    assert unsent(("run.py",), "run.py", run=text) == set()


def test_an_import_in_a_try_statement_counts() -> None:
    assert unsent(("run.py",), "run.py", run="try:\n    import model\nexcept ImportError:\n    pass\n") >= {"model.py"}


def test_circular_imports_are_handled() -> None:
    assert unsent(("a.py",), "a.py", a="import b", b="import a") == {"b.py"}


@pytest.mark.parametrize("command", [("/opt/train.py",), ("../train.py",)])
def test_scripts_outside_the_folder_are_skipped(command: tuple[str, ...]) -> None:
    assert unsent(command) == set()


def test_a_warning_has_the_place_and_the_fix(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nimport model\n")
    (tmp_path / "model.py").write_text("")
    (tmp_path / ".kitignore").write_text("model.py\n")
    spec = JobSpec(name="job", command=("train.py",))
    (warning,) = import_warnings(spec, Sources(files={"train.py": ""}), tmp_path)
    assert warning == (
        "modules of this folder are imported, but not sent with the job: model.py (in train.py, line 2); "
        "--workdir . sends the folder"
    )
    (warning,) = import_warnings(spec, Sources(workdir=collect(tmp_path, ())), Path("/"))
    assert warning.endswith("model.py (in train.py, line 2); name them with --send")
    (tmp_path / ".kitignore").unlink()
    assert not [*import_warnings(spec, Sources(workdir=collect(tmp_path, ())), Path("/"))]
