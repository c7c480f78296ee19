"""Mistakes in scripts from tutorials, and the correct result with kitctl."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer.nodes import free_port
from tests.trainer.workloads import idx
from tests.trainer.worlds import finish, fork, placed, run_module

pytestmark = [pytest.mark.slow, pytest.mark.wide]
SCRIPTS = "tests.tutorial.scripts"


def run(folder: Path, *command: str, ranks: int = 2, nodes: int = 1, **env: str) -> str:
    """Run a script on each rank; returns what they print. All exit with 0."""
    log, port = folder / f"log-{len(list(folder.glob('log-*')))}", free_port()
    processes = []
    for rank in range(ranks):
        own = placed(rank, ranks, port) | {"GROUP_RANK": str(rank * nodes // ranks), "KIT_SNAPSHOT_DIR": str(folder)}
        own |= {"LOCAL_RANK": str(rank % (ranks // nodes)), "KIT_BACKEND": "gloo", "KIT_RESUME": "1", **env}
        processes.append(fork(run_module, [f"{SCRIPTS}.{command[0]}", *command[1:]], own, log))
    codes = [finish(process) for process in processes]
    output = log.read_text()
    assert codes == [0] * ranks, output
    return output


def weights(output: str) -> list[float]:
    found = re.search(r"^weights \[(.*)\]$", output, re.MULTILINE)
    assert found is not None, output
    return list(ast.literal_eval(found[1]))


def error(output: str) -> float:
    found = re.search(r"^error (\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return float(found[1])


def epochs(output: str) -> list[int]:
    """The epochs that rank 0 trains."""
    return [int(epoch) for epoch in re.findall(r"^\[GPU0\] Epoch (\d+) ", output, re.MULTILINE)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The weights after four epochs of the tutorial's script without an interruption."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return weights(run(folder, "multinode", "4", "1", "--snapshot", str(folder / "snapshot.pt")))


@pytest.mark.parametrize(
    ("offset", "repeated"), [("0", [1, 2, 3]), ("1", [2, 3])], ids=["one epoch twice", "without the optimizer's state"]
)
def test_the_tutorials_script_resumes_with_other_weights(
    tmp_path: Path, undisturbed: list[float], offset: str, repeated: list[int]
) -> None:
    command = ["1", "--snapshot", str(tmp_path / "snapshot.pt"), "--offset", offset]
    assert epochs(run(tmp_path, "multinode", "2", *command)) == [0, 1]
    resumed = run(tmp_path, "multinode", "4", *command)
    assert epochs(resumed) == repeated
    assert not torch.allclose(torch.tensor(weights(resumed)), torch.tensor(undisturbed), atol=1e-4)


def test_the_kit_resumes_with_the_same_bits(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = run(tmp_path / "whole", "multinode_kit", "4", ranks=3)
    run(tmp_path / "parts", "multinode_kit", "2", ranks=3)
    resumed = run(tmp_path / "parts", "multinode_kit", "4", ranks=3)
    assert "resuming after step 16, in epoch 3" in resumed
    assert weights(resumed) == weights(whole)


def test_every_node_of_the_tutorial_writes_the_same_file_and_the_kit_one(tmp_path: Path) -> None:
    output = run(tmp_path, "multinode", "1", "1", "--snapshot", str(tmp_path / "snapshot.pt"), nodes=2)
    assert output.count("Training snapshot saved at snapshot.pt") == 2
    (tmp_path / "kit").mkdir()
    run(tmp_path / "kit", "multinode_kit", "1", nodes=2)
    assert len(list((tmp_path / "kit").glob("step-*"))) == 1
    assert len(list((tmp_path / "kit").glob("step-*/shard-*"))) == 2


def test_cross_entropy_of_a_regression_learns_nothing(tmp_path: Path) -> None:
    command = ["multinode", "3", "9", "--snapshot"]
    wrong = run(tmp_path, *command, str(tmp_path / "wrong.pt"), "--loss", "cross_entropy")
    right = run(tmp_path, *command, str(tmp_path / "right.pt"), "--loss", "mse_loss")
    assert set(re.findall(r"Loss: (\S+)", wrong)) == {"-0.000000"}  # of one class, always
    assert error(wrong) > 1
    assert error(right) < 0.1 * error(wrong)


def test_padding_changes_an_accuracy_and_the_local_rank_is_not_the_rank(tmp_path: Path) -> None:
    output = run(tmp_path, "evaluation", ranks=3, nodes=3)
    assert "padded: 0.8333 of 12; exact: 0.9000 of 10" in output
    parts = {line.partition(" has ")[2] for line in output.splitlines() if line.startswith("local rank: node ")}
    assert parts == {"[0, 3, 6, 9]"}  # all three nodes


def test_ranks_of_a_tutorial_download_in_parallel_and_the_kits_once(tmp_path: Path) -> None:
    digests = json.dumps(idx.write(tmp_path / "mirror"))
    counts = {}
    with idx.serve(tmp_path / "mirror") as (url, requests):
        for how, ranks in (("kit", 1), ("kit", 3), ("tutorial", 3)):
            requests.clear()
            folder = tmp_path / f"{how}-{ranks}"
            folder.mkdir()
            try:
                run(folder, "downloads", how, str(folder / "data"), url, ranks=ranks, DIGESTS=digests)
            except AssertionError:
                if how == "kit":
                    raise  # a tutorial's rank may read what another is still writing
            counts[how, ranks] = len(requests)
    assert counts["kit", 3] == counts["kit", 1]
    assert counts["tutorial", 3] > counts["kit", 1]


def test_a_checkpoint_with_module_in_its_names_does_not_fit_and_model_pt_does(tmp_path: Path) -> None:
    saved = nn.DataParallel(nn.Linear(8, 1)).state_dict()
    plain = nn.Linear(8, 1)
    with pytest.raises(RuntimeError, match=r'Missing key.*"weight"'):
        plain.load_state_dict({f"module.{name}": value for name, value in saved.items()})  # as a tutorial has it
    plain.load_state_dict({name.removeprefix("module."): value for name, value in saved.items()})
    output = run(tmp_path, "multinode_kit", "1")
    plain.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert plain.weight.tolist() == [weights(output)]


def test_weights_saved_under_any_wrapping_are_loaded_under_any_other(tmp_path: Path) -> None:
    output = run(tmp_path, "checkpoints", str(tmp_path))
    found = re.findall(r"^rank (\d): (\S+ to \S+), (\w+): (\w+)$", output, re.MULTILINE)
    assert len(set(found)) == 2 * 4 * (4 + 3)
    assert {equal for *_, equal in found} == {"True"}
    assert "module.0.weight" in torch.load(tmp_path / "DDP.pt", weights_only=True)
    assert "the file has 35 of 63 numbers" in output
