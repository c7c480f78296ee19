"""Parsing launch lines of other launchers; errors contain a line that works."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from kitctl.base.errors import UsageError
from kitctl.input import lines
from kitctl.input.launchers import LAUNCHERS

READ: dict[str, tuple[dict[str, Any], str]] = {
    # torchrun, as in tutorials
    "torchrun --standalone --nproc_per_node=2 3.torchrun.py 50 10": ({"procsPerNode": 2}, "3.torchrun.py 50 10"),
    "torchrun --nproc_per_node=2 --nnode=2 --node_rank=0 multinode.py 50 10": (
        {"nodes": 2, "procsPerNode": 2},
        "multinode.py 50 10",
    ),
    'torchrun --nnodes=1 --node_rank=0 --nproc_per_node=2 --master_addr="192.168.1.250" --master_port=23456 m.py': (
        {"nodes": 1, "procsPerNode": 2},
        "m.py",
    ),
    "torchrun --nnodes 2 --nproc-per-node=4 --rdzv_backend=c10d --rdzv_endpoint=10.0.0.1 a.py --lr 1e-3 -m x": (
        {"nodes": 2, "procsPerNode": 4},
        "a.py --lr 1e-3 -m x",
    ),
    "torchrun --nnodes=1:4 --max-restarts=3 --rdzv-conf a=1,b=2 -m pkg.train --epochs 5": (
        {"nodes": "1:4", "policy": {"maxRestarts": 3}},
        "-m pkg.train --epochs 5",
    ),
    "/opt/venv/bin/torchrun --nproc-per-node auto --log-dir x -r 3 -t 3 a.py": ({"procsPerNode": "auto"}, "a.py"),
    "torchrun --nproc-per-node 2 -- a.py": ({"procsPerNode": 2}, "a.py"),
    # python, and modules that launch
    "python train.py --epochs 5": ({}, "train.py --epochs 5"),
    "python3.11 -u -W ignore -X dev -m pkg.train -u": ({}, "-m pkg.train -u"),
    "python -m torch.distributed.run --nnodes 2 a.py": ({"nodes": 2}, "a.py"),
    "python -m torch.distributed.launch --nproc-per-node=4 --use_env launch.py": ({"procsPerNode": 4}, "launch.py"),
    "env OMP_NUM_THREADS=2 CUDA_VISIBLE_DEVICES=0,1 python a.py": (
        {"env": {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0,1"}},
        "a.py",
    ),
    "nohup env A=b time torchrun a.py": ({"env": {"A": "b"}}, "a.py"),
    "NCCL_DEBUG=INFO torchrun a.py K=V": ({"env": {"NCCL_DEBUG": "INFO"}}, "a.py K=V"),
    # by world size
    "accelerate launch --multi_gpu --num_machines 2 --num_processes 8 --mixed_precision bf16 a.py --x 1": (
        {"nodes": 2, "procsPerNode": 4, "env": {"ACCELERATE_MIXED_PRECISION": "bf16"}},
        "a.py --x 1",
    ),
    "accelerate launch --cpu --num_processes 2 a.py": (
        {"nodes": 1, "procsPerNode": 2, "env": {"ACCELERATE_USE_CPU": "true"}},
        "a.py",
    ),
    "mpirun -np 8 python train.py": ({"nodes": 1, "procsPerNode": 8}, "train.py"),
    "mpirun -np 8 -H a:4,b:4 -x NCCL_DEBUG=INFO --mca btl tcp python3 -u a.py": (
        {"nodes": 2, "procsPerNode": 4, "env": {"NCCL_DEBUG": "INFO"}},
        "a.py",
    ),
    "mpirun -np 6 --host a:4,b:2 python a.py": ({"nodes": 2, "procsPerNode": "4,2"}, "a.py"),
    "mpirun -n 8 --map-by ppr:4:node --bind-to none --allow-run-as-root python -m a": (
        {"nodes": 2, "procsPerNode": 4},
        "-m a",
    ),
    "mpiexec -n 6 -ppn 2 python a.py": ({"nodes": 3, "procsPerNode": 2}, "a.py"),
    "srun -N 2 --ntasks-per-node=4 --gres=gpu:a100:4 -p long python a.py": (
        {"nodes": 2, "procsPerNode": 4, "gpusPerNode": 4},
        "a.py",
    ),
    "srun -n 8 --nodes=4 python a.py": ({"nodes": 4, "procsPerNode": 2}, "a.py"),
    "deepspeed --num_nodes 2 --num_gpus 4 --hostfile h a.py --deepspeed_config x": (
        {"nodes": 2, "gpusPerNode": 4},
        "a.py --deepspeed_config x",
    ),
}


@pytest.mark.parametrize("line", READ)
def test_a_launch_line_is_parsed(line: str) -> None:
    fields, program = READ[line]
    read = lines.parse(shlex.split(line))
    assert read is not None
    assert (read.fields, shlex.join(read.program)) == (fields, program)


@pytest.mark.parametrize("line", ["train.py --nnodes 2", "-m pkg.torchrun", "lib/python.py", "a=b.py", ""])
def test_a_script_or_a_module_is_not_a_launch_line(line: str) -> None:
    assert lines.parse(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("torchrun --nnodes 2", "torchrun: the line has no script", "kitctl submit"),
        ("torchrun -m", "has no script", "kitctl submit"),
        ("torchrun --nnodes", "--nnodes needs a value", "kitctl submit"),
        ("torchrun --frob 2 a.py", "does not know the option --frob", "leave it out"),
        ("torchrun --n 2 a.py", "does not know the option --n", "leave it out"),
        ("torchrun --rdzv 2 --no-python ls", "--no-python is not passed to the ranks", "in the script"),
        ("torchrun --nproc-per-node gpu a.py", "how many GPUs a node has", "--gpus-per-node N"),
        ("torchrun --nproc-per-node cpu a.py", "how many CPUs a node has", "--procs-per-node N"),
        ("accelerate config", "only `accelerate launch`", "kitctl submit"),
        ("accelerate launch --config_file x a.py", "--config_file is not passed", "in the script"),
        ("accelerate launch --num_machines 2 --num_processes 3 a.py", "3 ranks are not the same number", "both"),
        ("mpirun -np eight python a.py", "eight ranks", "both numbers"),
        ("mpirun -np 4 -N 0 python a.py", "4 ranks are not the same number for each of 0", "both numbers"),
        ("mpirun -x HOME python a.py", "-x HOME copies a variable", "-e HOME"),
        ("mpirun -np 4", "has no script", "kitctl submit"),
        ("horovodrun -np 4 python a.py", "horovodrun cannot run inside a job", "kitctl submit"),
        ("bash run.sh", "bash cannot run inside a job", "kitctl submit"),
        ("uv run torchrun a.py", "uv cannot run inside a job", "kitctl submit"),
        ("python -c 1", "python -c cannot be sent", "into a script"),
        ("python", "has no script", "kitctl submit"),
        ("python -u -m", "has no script", "kitctl submit"),
        ("A=B train.py", "A=B comes before the script", "-e A=B"),
    ],
)
def test_an_unsupported_line_is_an_error_with_a_line_that_works(line: str, message: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        lines.parse(shlex.split(line))
    assert message in caught.value.message
    assert fix in caught.value.fix


def test_kitctls_flags_complete_a_line_with_only_one_number() -> None:
    read = lines.parse(shlex.split("mpirun -np 8 python a.py"), {"nodes": 4})
    assert read is not None
    assert read.fields == {"nodes": 4, "procsPerNode": 2}
    read = lines.parse(shlex.split("torchrun --nproc-per-node gpu a.py"), {"gpusPerNode": 4})
    assert read is not None
    assert read.fields == {}


def test_options_that_kitctl_sets_itself_are_reported() -> None:
    read = lines.parse(shlex.split("torchrun --node_rank=1 --rdzv-id 5 --tee 3 a.py"))
    assert read is not None
    assert read.left_out == ["--node_rank", "--rdzv-id", "--tee"]


def test_the_equivalent_line_gives_the_same_job() -> None:
    read = lines.parse(shlex.split("A='b c' torchrun --nnodes 2:3 --nproc-per-node 4 --max-restarts 9 a.py 'x y'"))
    assert read is not None
    expected = "kitctl submit --nodes 2:3 --procs-per-node 4 --max-restarts 9 -e 'A=b c' -- a.py 'x y'"
    assert read.equivalent(read.fields) == expected


def test_only_launchers_that_pass_the_local_rank_make_it_an_argument() -> None:
    assert {name for name, launcher in LAUNCHERS.items() if launcher.local_rank} == {
        "deepspeed",
        "torch.distributed.launch",
    }


@pytest.mark.parametrize("name", ["torchrun", "torch.distributed.launch"])
def test_all_options_of_torchrun_are_known(name: str) -> None:
    run = pytest.importorskip("torch.distributed.run")
    known = LAUNCHERS[name].options
    for action in run.get_args_parser()._actions:
        for spelling in action.option_strings:
            option = known.get(spelling.lstrip("-").replace("_", "-"))
            if spelling in {"-h", "--help", "--print-completion", "--print_completion"}:
                continue
            assert option is not None, spelling
            assert option.values == (0 if action.nargs == 0 else 1), spelling
