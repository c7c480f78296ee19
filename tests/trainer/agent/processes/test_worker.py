"""A rank's process behaves as ``python script.py`` does, and records its error for the agent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from kittrain.agent.hooks import script_hooks
from kittrain.agent.hooks.notes.notes import Notes
from kittrain.agent.hooks.notes.sampler_orders import SamplerOrders
from kittrain.agent.hooks.steps.script_evaluations import ScriptEvaluations
from kittrain.agent.processes.worker import PACKAGE, lost_peers, main_spec, without_own_frames
from kittrain.outcome.causes import cause_of
from kittrain.system.heartbeat import ScriptWriter

pytestmark = pytest.mark.slow


def work(folder: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a rank in a folder; its error file is ``error.json`` there."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "kittrain.agent.processes.worker", *command],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={"TORCHELASTIC_ERROR_FILE": str(folder / "error.json"), "PATH": "", **env},
    )


def test_a_script_has_its_arguments_its_folder_and_the_name_main(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("WHERE = 'next to the script'\n")
    script = "import sys, beside\nprint(__name__, sys.argv, beside.WHERE, sys.path[0])\n"
    (tmp_path / "sub" / "train.py").write_text(script)
    done = work(tmp_path, "sub/train.py", "--epochs", "5")
    expected = f"__main__ ['sub/train.py', '--epochs', '5'] next to the script {tmp_path / 'sub'}\n"
    assert (done.returncode, done.stdout) == (0, expected)


@pytest.mark.wide
def test_an_argument_may_have_the_local_rank_as_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = work(tmp_path, "train.py", "--local_rank=${local_rank}", "$local_rank ${rank}", LOCAL_RANK="3")
    assert done.stdout == "['--local_rank=3', '$local_rank ${rank}']\n"


@pytest.mark.wide
def test_a_module_is_found_from_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    done = work(tmp_path, "-m", "package.train", "-m", "5")
    assert (done.returncode, done.stdout) == (0, "__main__ package ['-m', '5']\n")


@pytest.mark.parametrize(
    ("name", "fix"),
    [("nosuch", "--requirements"), ("package", "that can be run"), ("package.nosuch", "package.nosuch as")],
)
def test_a_module_that_is_not_there_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fix: str
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError) as raised:
        main_spec(name)
    cause = cause_of(f"{type(raised.value).__name__}: {raised.value}")
    assert (cause.permanent, fix in cause.fix) == (True, True)


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.wide), 3])
def test_an_exit_code_is_kept(tmp_path: Path, code: int) -> None:
    (tmp_path / "train.py").write_text(f"raise SystemExit({code})\n")
    assert work(tmp_path, "train.py").returncode == code
    assert not (tmp_path / "error.json").exists()


def test_an_exception_is_printed_and_recorded_from_the_scripts_first_frame(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def explode():\n    raise ValueError('no')\nexplode()\n")
    done = work(tmp_path, "train.py")
    recorded = json.loads((tmp_path / "error.json").read_text())["message"]
    assert done.returncode == 1
    assert recorded["message"] == "ValueError: no"
    for text in (done.stderr, recorded["extraInfo"]["py_callstack"]):
        first, second, *_ = text.splitlines()
        assert first == "Traceback (most recent call last):"
        assert 'train.py", line 3, in <module>' in second
        assert text.endswith("ValueError: no\n")


def test_an_error_of_importing_torch_itself_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("class ReplayQueue: pass\n")
    (tmp_path / "train.py").write_text("import torch\n")
    done = work(tmp_path, "train.py")
    recorded = json.loads((tmp_path / "error.json").read_text())["message"]
    assert done.returncode == 1
    assert recorded["message"].startswith("ImportError: cannot import name ")
    assert "from 'queue'" in recorded["message"]
    assert 'train.py", line 1, in <module>' in recorded["extraInfo"]["py_callstack"]
    assert "only be initialized once" not in done.stderr


GONE = "[/b/gloo/pair.cc:1] Connection closed by peer [127.0.0.1]:5. Check the logs of the remote worker."


@pytest.mark.parametrize(
    ("raised", "debug", "expected"),
    [
        (
            f"RuntimeError('{GONE}')",
            "OFF",
            "lost its peers at train.py:1 in <module>: RuntimeError: Connection closed",
        ),
        *(
            pytest.param(raised, debug, "Traceback (most recent call last):", marks=pytest.mark.wide)
            for raised, debug in [
                (f"RuntimeError('{GONE}')", "DETAIL"),
                ("ConnectionResetError('of the script itself')", "OFF"),
                ("RuntimeError('shapes')", "OFF"),
            ]
        ),
    ],
)
def test_lost_peers_are_one_line(tmp_path: Path, raised: str, debug: str, expected: str) -> None:
    (tmp_path / "train.py").write_text(f"raise {raised}\n")
    done = work(tmp_path, "train.py", TORCH_DISTRIBUTED_DEBUG=debug)
    assert done.returncode == 1
    assert done.stderr.startswith(expected)
    assert (done.stderr.count("\n") == 1) == expected.startswith("lost")
    recorded = json.loads((tmp_path / "error.json").read_text())["message"]
    assert "Traceback" in recorded["extraInfo"]["py_callstack"]


def test_lost_peers_are_placed_in_the_script_and_not_in_the_hook_around_backward() -> None:
    torchs = ModuleType("autograd")
    source = f"def backward(): raise RuntimeError({GONE!r})"
    exec(compile(source, "/lib/torch/autograd/__init__.py", "exec"), vars(torchs))
    ignore = {"backward_began": lambda _: None, "backward_ended": lambda _: None}
    writer = SimpleNamespace(optimized=True, grouped=False, **ignore)
    notes = Notes(SamplerOrders(list, lambda: 0, lambda: False), lambda: 0)
    script_hooks._watch_backward(torchs, cast("ScriptWriter", writer), ScriptEvaluations(list, list), notes)
    with pytest.raises(RuntimeError) as caught:
        torchs.backward()
    place = r"test_worker.py:\d+ in test_lost_peers_are_placed_in_the_script_and_not_in_the_hook_around_backward"
    assert re.match(f"lost its peers at {place}: RuntimeError: Connection closed", lost_peers(caught.value, {}))


def test_lost_peers_are_placed_in_the_workload_and_not_in_the_library() -> None:
    inside: dict[str, Any] = {}
    ranks = f"def backward():\n    raise RuntimeError({GONE!r})"
    exec(compile(ranks, str(PACKAGE / "torch_private" / "ranks.py"), "exec"), inside)
    workload = "def train():\n    backward()"
    exec(compile(workload, str(PACKAGE / "workloads" / "toy.py"), "exec"), inside)
    with pytest.raises(RuntimeError) as caught:
        inside["train"]()
    workload_frame = caught.tb.tb_next
    assert workload_frame
    caught.value.__traceback__ = workload_frame  # this test is not the script
    assert lost_peers(caught.value, {}).startswith("lost its peers at toy.py:2 in train: RuntimeError")
    caught.value.__traceback__ = workload_frame.tb_next  # nothing but the library
    assert lost_peers(caught.value, {}).startswith("lost its peers at ranks.py:2 in backward")


def test_a_traceback_has_no_frames_of_hooks_that_a_call_has_passed_through() -> None:
    hook: dict[str, Any] = {}
    exec(
        compile("def noted(call):\n    return call()", str(PACKAGE / "agent/hooks/notes/sampler_orders.py"), "exec"),
        hook,
    )

    def broken() -> None:
        raise ValueError

    with pytest.raises(ValueError) as caught:  # noqa: PT011  its frames are what counts
        hook["noted"](lambda: hook["noted"](broken))
    names = [one.name for one in traceback.extract_tb(without_own_frames(caught.tb))]
    assert names[1:] == ["<lambda>", "broken"]

    with pytest.raises(TypeError) as ours:  # raised in the hook itself
        hook["noted"](None)
    assert traceback.extract_tb(without_own_frames(ours.tb))[-1].name == "noted"


def test_an_error_without_user_frames_has_no_traceback() -> None:
    assert without_own_frames(None) is None
