"""Causes in process groups: ranks that train alone, or lose each other. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

GROUPS: Final = Family(
    "Process groups",
    "Running",
    (
        Rule(
            r"(\d+ ranks train, \bthe largest process group has \d+ of them\b: each has a model of its own)",
            "{0}",
            "leave out rank and world_size of init_process_group, and what sets RANK, WORLD_SIZE and MASTER_PORT in "
            "the script: kitctl sets them, so that all ranks form one group",
            seen="2 ranks train, the largest process group has 1 of them: each has a model of its own; ...",
            means="the script, or what it imports, says how many ranks there are",
        ),
        Rule(
            r"(\d+ ranks train, .*?: each has a model of its own)",
            "{0}",
            "a script for one process: --nodes 1; else let it call init_process_group (docs/trainer.md). Accelerate "
            "takes CPUs for one process, unless with --backend gloo",
            local="a script for one process: --nodes 1; else let it call init_process_group (docs/trainer.md)",
            seen="2 ranks train, without a process group: each has a model of its own; ...",
        ),
        Rule(
            r"(\d+ ranks train in a process group, and exchange no gradients)",
            "{0}",
            "wrap the model in DistributedDataParallel, or average the gradients; nothing, if the ranks exchange data "
            "in another way",
            seen="2 ranks train in a process group, and exchange no gradients: each has a model of its own; ...",
            means="what they exchange is less than a thousandth of the model a step, such as a loss",
        ),
        Rule(
            r"(each of the \d+ ranks starts .*?, which forms? a group of (?:its|their) own)",
            "{0}",
            "start the processes as ranks: --procs-per-node (docs/from-tutorial-to-cluster.md)",
            seen="each of the 2 ranks starts a process, which forms a group of its own on its machine: ...",
            means="a script with mp.spawn on several nodes, each of which trains a model of its own",
        ),
        Rule(
            r"lost its peers \(.*?after \d+ such losses without a new snapshot",
            "",
            "see the other ranks' logs, as one of them ended first; --env TORCH_DISTRIBUTED_DEBUG=INFO shows the "
            "whole traceback; between machines, the network: --nccl-debug INFO",
            local="see the other ranks' logs, as one of them ended first; --env TORCH_DISTRIBUTED_DEBUG=INFO shows "
            "the whole traceback",
            seen="rank 0 lost its peers (DistBackendError: ...) after 100 such losses without a new snapshot",
        ),
    ),
)
