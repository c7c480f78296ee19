"""Other launchers, and the meaning of their options: tables for ``launch.lines``."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Meaning = Literal[
    "nodes",
    "procs",  # ranks of a node
    "gpus",  # of a node, with a rank for each
    "gres",  # the same, as ``gpu:4``
    "ranks",  # of all nodes
    "hosts",  # ``a:4,b:4``
    "mapping",  # ``ppr:4:node``
    "restarts",
    "env",  # a variable, as ``K=V``
    "module",  # the program is a module
    "set by kitctl",  # left out
    "unsupported",
]


class Option(NamedTuple):
    """An option of a launcher."""

    meaning: Meaning
    values: int = 1
    """How many words follow it."""
    variable: str = ""
    """The variable that hands its value, or ``true``, to the ranks."""


class Launcher(NamedTuple):
    """A launcher."""

    options: dict[str, Option]
    """By name, without dashes in front, and with dashes inside."""
    abbreviates: bool = False
    """Whether the beginning of an option's name is enough."""
    python: bool = False
    """Whether its program starts with ``python``."""
    local_rank: str = ""
    """The argument with the local rank that the launcher adds for each rank, if any."""


def _options(meaning: Meaning, names: str, values: int = 1) -> dict[str, Option]:
    return {name: Option(meaning, values) for name in names.split()}


def _variables(values: int, **names: str) -> dict[str, Option]:
    return {name.replace("_", "-"): Option("env", values, variable) for name, variable in names.items()}


_TORCHRUN: Final = {
    **_options("nodes", "nnodes"),
    **_options("procs", "nproc-per-node"),
    **_options("restarts", "max-restarts"),
    **_options("module", "m module", values=0),
    **_options("unsupported", "no-python", values=0),
    **_options("set by kitctl", "standalone run-path use-env virtual-local-rank", values=0),
    **_options("set by kitctl", "node-rank master-addr master-port local-addr role start-method monitor-interval"),
    **_options("set by kitctl", "rdzv-backend rdzv-endpoint rdzv-id rdzv-conf event-log-handler logs-specs"),
    **_options("set by kitctl", "log-dir r redirects t tee log-line-prefix-template local-ranks-filter numa-binding"),
    **_options("set by kitctl", "duplicate-stdout-filters duplicate-stderr-filters signals-to-handle shutdown-timeout"),
}
_ACCELERATE: Final = {
    **_options("nodes", "num-machines"),
    **_options("ranks", "num-processes"),
    **_options("restarts", "max-restarts"),
    **_options("module", "m module", values=0),
    **_options("unsupported", "config-file deepspeed-config-file"),
    **_options("unsupported", "no-python use-deepspeed use-fsdp use-megatron-lm tpu", values=0),
    **_options("set by kitctl", "multi-gpu same-network debug quiet", values=0),
    **_options("set by kitctl", "machine-rank main-process-ip main-process-port rdzv-backend rdzv-conf"),
    **_options("set by kitctl", "monitor-interval log-dir tee role gpu-ids num-cpu-threads-per-process"),
    **_variables(1, mixed_precision="ACCELERATE_MIXED_PRECISION", dynamo_backend="ACCELERATE_DYNAMO_BACKEND"),
    **_variables(1, gradient_accumulation_steps="ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
    **_variables(0, cpu="ACCELERATE_USE_CPU"),
}
_DEEPSPEED: Final = {
    **_options("nodes", "num-nodes"),
    **_options("gpus", "num-gpus"),
    **_options("module", "module m", values=0),
    **_options("unsupported", "no-python", values=0),
    **_options("set by kitctl", "hostfile H i include e exclude master-addr master-port launcher node-rank"),
}
_MPIRUN: Final = {  # Open MPI's, MPICH's and Intel's
    **_options("ranks", "n np c"),
    **_options("procs", "N npernode ppn perhost"),
    **_options("hosts", "H host hosts"),
    **_options("mapping", "map-by"),
    **_options("env", "x"),
    **_options("set by kitctl", "hostfile machinefile f bind-to rank-by iface prefix wdir launcher"),
    **_options("set by kitctl", "mca genv env", values=2),
    **_options("set by kitctl", "allow-run-as-root oversubscribe tag-output report-bindings l q v", values=0),
}
_SRUN: Final = {
    **_options("nodes", "N nodes"),
    **_options("ranks", "n ntasks"),
    **_options("procs", "ntasks-per-node"),
    **_options("gpus", "gpus-per-node"),
    **_options("gres", "gres"),
    **_options(
        "set by kitctl", "p partition A account q qos t time J job-name c cpus-per-task mem gpus-per-task G gpus"
    ),
    **_options(
        "set by kitctl", "o output e error w nodelist C constraint mpi cpu-bind gpu-bind D chdir kill-on-bad-exit"
    ),
    **_options("set by kitctl", "exclusive l label u unbuffered", values=0),
}

LAUNCHERS: Final = {
    "torchrun": Launcher(_TORCHRUN, abbreviates=True),
    "torch.distributed.run": Launcher(_TORCHRUN, abbreviates=True),
    "torch.distributed.launch": Launcher(_TORCHRUN, abbreviates=True, local_rank="--local-rank"),
    "accelerate": Launcher(_ACCELERATE, abbreviates=True),
    "accelerate.commands.launch": Launcher(_ACCELERATE, abbreviates=True),
    "deepspeed": Launcher(_DEEPSPEED, abbreviates=True, local_rank="--local_rank"),
    "mpirun": Launcher(_MPIRUN, python=True),
    "mpiexec": Launcher(_MPIRUN, python=True),
    "srun": Launcher(_SRUN, python=True),
}
UNSUPPORTED: Final = frozenset(
    {"horovodrun", "colossalai", "composer", "ray", "tune", "lightning", "torchx"}
    | {"bash", "sh", "zsh", "uv", "poetry", "pipenv", "conda", "docker", "sudo"}
)
PREFIXES: Final = frozenset({"env", "nohup", "time", "exec"})
