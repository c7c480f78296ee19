"""When a forked process must exec a new interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kittrain.system.reexec import hidden_modules, reexec_reason


@pytest.mark.parametrize(
    ("name", "early"),
    [
        ("PYTHONHASHSEED", True),
        ("OMP_NUM_THREADS", True),
        ("TORCH_LOGS", True),
        ("LD_PRELOAD", True),
        ("RANK", False),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", False),
        ("TORCHELASTIC_RUN_ID", False),
        ("TORCHINDUCTOR_CACHE_DIR", False),
        ("TMPDIR", False),
    ],
)
def test_variables_that_are_read_once_must_not_differ(name: str, *, early: bool) -> None:
    for then, now in (({}, {name: "1"}), ({name: "1"}, {}), ({name: "1"}, {name: "2"})):
        assert (name in reexec_reason(then, now)) == early
    assert not reexec_reason({name: "1", "A": "1"}, {name: "1", "A": "2"})


def test_hidden_modules_are_found(tmp_path: Path) -> None:
    for name in ("pluggy.py", "json.py", "sys.py", "os.py", "of_its_own.py", "trainer.py", "notes.txt", "__main__.py"):
        (tmp_path / name).touch()
    for folder in ("hypothesis", "pytest"):
        (tmp_path / folder).mkdir()
    (tmp_path / "hypothesis" / "__init__.py").touch()
    assert set(hidden_modules(tmp_path)) == {"pluggy.py", "json.py", "hypothesis"}  # sys and os come first anyway
    assert "hypothesis, json.py, pluggy.py in " in reexec_reason({}, {}, [tmp_path])
    assert reexec_reason({}, {}, [tmp_path / "missing"]) == ""


def test_a_module_imported_from_the_folder_is_not_hidden() -> None:
    for module in (sys.modules[__name__], pytest):
        assert module.__file__
        path = Path(module.__file__)
        folder = path.parent.parent if path.stem == "__init__" else path.parent
        assert folder.name not in set(hidden_modules(folder))
        assert "pytest" not in set(hidden_modules(folder))
