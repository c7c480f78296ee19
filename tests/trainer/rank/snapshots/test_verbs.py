"""``python -m kittrain.rank.snapshots``: only one JSON document on stdout, errors on stderr."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.trainer import runs


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-P", "-m", "kittrain.rank.snapshots", "--folder", str(folder), *words]
    return subprocess.run(command, check=False, capture_output=True)


def result(folder: Path, *words: str) -> Any:
    done = run(folder, *words)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_list_and_verify_print_the_newest_first(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 5)
    runs.flip(tmp_path / "step-00000002-g0001" / "shard-00000.bin")
    newest, older = result(tmp_path, "list")
    assert (newest["step"], newest["epoch"], newest["generation"], newest["worldSize"]) == (5, 2, 1, 2)
    assert (newest["run"], newest["condition"]) == ("run-1", "whole")
    assert newest["size"] == sum(file.stat().st_size for file in (tmp_path / newest["name"]).iterdir())
    assert older["condition"] == "whole"
    assert [one["condition"] for one in result(tmp_path, "verify")] == ["verified", "damaged"]
    assert [one["step"] for one in result(tmp_path, "verify", "5")] == [5]


def test_what_is_not_finite_is_shown(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 5)
    runs.resign(tmp_path / "step-00000005-g0001", not_finite="the loss of step 5 is nan")
    assert [one["notFinite"] for one in result(tmp_path, "list")] == ["the loss of step 5 is nan", ""]
    assert result(tmp_path, "show")["notFinite"] == "the loss of step 5 is nan"


def test_show_prints_tensors_and_ledger(tmp_path: Path) -> None:
    runs.run(tmp_path, 5)
    shown = result(tmp_path, "show", "5")
    assert shown["tensors"] == [
        {"name": "weight", "shape": [2, 3], "dtype": "float32", "size": 24},
        {"name": "bias", "shape": [], "dtype": "float32", "size": 4},
    ]
    assert [(one["epoch"], one["firstStep"], one["lastStep"]) for one in shown["ledger"]] == [(0, 1, 3), (1, 4, 5)]
    assert (shown["samples"], shown["batch"]) == (10, 4)


def test_export_prints_the_file_itself(tmp_path: Path) -> None:
    runs.run(tmp_path, 1)
    weights = torch.load(io.BytesIO(run(tmp_path, "export").stdout), weights_only=True)
    assert torch.equal(weights["weight"], runs.WEIGHTS["weight"])
    file = run(tmp_path, "export", "1", "--format", "safetensors").stdout
    assert json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])["weight"]["shape"] == [2, 3]


def test_prune_deletes_only_snapshots_given_by_name(tmp_path: Path) -> None:
    runs.run(tmp_path, 1, 2, 3)
    assert [one["step"] for one in result(tmp_path, "prune", "--keep", "1")] == [2, 1]
    assert len(list(tmp_path.glob("step-*"))) == 3
    dropped = result(tmp_path, "prune", "--keep", "1", "--drop=step-00000001-g0001")
    assert [one["step"] for one in dropped] == [1]
    refused = run(tmp_path, "prune", "--keep", "1", "--drop=step-00000003-g0001")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"step-00000003-g0001 cannot be deleted" in refused.stderr
    assert len(list(tmp_path.glob("step-*"))) == 2


def test_audit_prints_a_proof_for_each_snapshot_and_the_unusable_ones(tmp_path: Path) -> None:
    runs.run(tmp_path, 2, 5, 7)
    (tmp_path / "step-00000002-g0001" / "manifest.json").write_text("{}")
    audit = result(tmp_path, "audit")
    assert [(proof["steps"], proof["counted"], proof["broken"]) for proof in audit["proofs"]] == [
        (7, 24, ""),
        (5, 18, ""),
    ]
    assert [one["step"] for one in audit["unusable"]] == [2]
    assert [entry["stop"] for entry in audit["proofs"][0]["ledger"]] == [10, 10, 4]


def test_output_of_libraries_is_not_part_of_the_result(tmp_path: Path) -> None:
    runs.run(tmp_path, 1)
    noisy = "import os, kittrain.rank.snapshots.folder.catalogue as c, kittrain.rank.snapshots.__main__ as s\n"
    noisy += "real = c.inspect_all\n"
    noisy += "def loud(*a, **k):\n    print('a library'); os.system('echo its child')\n    return real(*a, **k)\n"
    noisy += f"c.inspect_all = loud\ns.main(['--folder', {str(tmp_path)!r}, 'list'])"
    done = subprocess.run([sys.executable, "-c", noisy], check=True, capture_output=True)
    assert [one["step"] for one in json.loads(done.stdout)] == [1]
    assert b"a library" in done.stderr
    assert b"its child" in done.stderr


def test_a_missing_snapshot_ends_with_exit_code_1(tmp_path: Path) -> None:
    done = run(tmp_path, "show", "4")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines()[-1] == "no snapshot '4'; steps with a usable one: none"
