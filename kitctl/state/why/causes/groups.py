"""Causes in process groups: ranks that train alone, or lose each other. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

GROUPS: Final = Family(
    "Process groups",
    "Running",
    (
        Rule(
            "spawn-of-zero-processes",
            r"(it has started 0 processes by torch\.multiprocessing\.spawn)",
            "",
            "leave out mp.spawn: each rank is a process already, with RANK, LOCAL_RANK and WORLD_SIZE; if their number "
            "is torch.cuda.device_count(): no GPU is here (--gpus-per-node N)",
            seen="no optimizer step was seen; rank 0: it has started 0 processes by torch.multiprocessing.spawn",
        ),
        Rule(
            "steps-of-started-programs-not-seen",
            r"(the steps of programs that it has started are not seen: \d+ of \S+)",
            "",
            "nothing, if the job did what it should; to see them, and to have them restarted, submit what it starts, "
            "once for each process: kitctl submit --procs-per-node N -- SCRIPT",
            seen="no optimizer step was seen; rank 0: the steps of programs that it has started are not seen: 2 of "
            "train.py",
            means="a launcher of the repository's own, which starts a process for each GPU",
        ),
        Rule(
            "process-group-too-small",
            r"(\d+ ranks train, \bthe largest process group has \d+ of them\b: each has a model of its own)",
            "{0}",
            "leave out rank and world_size of init_process_group, and what sets RANK, WORLD_SIZE and MASTER_PORT in "
            "the script: kitctl sets them, so that all ranks form one group",
            seen="2 ranks train, the largest process group has 1 of them: each has a model of its own; ...",
            means="the script, or what it imports, says how many ranks there are",
        ),
        Rule(
            "ranks-without-process-group",
            r"(\d+ ranks train, .*?: each has a model of its own)",
            "{0}",
            "a script for one process: --nodes 1; else let it call init_process_group (docs/trainer.md). Accelerate "
            "takes CPUs for one process, unless with --backend gloo",
            local="a script for one process: --nodes 1; else let it call init_process_group (docs/trainer.md)",
            seen="2 ranks train, without a process group: each has a model of its own; ...",
        ),
        Rule(
            "gradients-not-exchanged",
            r"(\d+ ranks train in a process group, and exchange no gradients)",
            "{0}",
            "wrap the model in DistributedDataParallel and call what that returns (not model.module, nor the model "
            "that it was given), without no_sync() in a step's last pass; or average the gradients; nothing, if the "
            "ranks exchange data in another way",
            seen="2 ranks train in a process group, and exchange no gradients: each has a model of its own; ...",
            means="what they exchange is less than a thousandth of the model a step, such as a loss",
        ),
        Rule(
            "sampler-settings-differ-between-ranks",
            r"(the DistributedSampler of rank \d+ has \w+=\S+, that of rank \d+ \w+=\S+): they do not divide the data",
            "{0}: they do not divide the data",
            "give all ranks the same seed, shuffle and num_replicas, and each its own rank: DistributedSampler(data) "
            "takes RANK and WORLD_SIZE from the process group; different for each rank may be a seed of augmentations",
            seen="the DistributedSampler of rank 0 has seed=0, that of rank 1 seed=1: they do not divide the data: ...",
            means="each has an order of its own, or another part than it should: ranks train on some samples twice, "
            "and on others never",
        ),
        Rule(
            "dataset-length-differs-between-ranks",
            r"(the DistributedSampler of rank \d+ has \d+ samples, that of rank \d+ \d+): they do not divide the data",
            "{0}: they do not divide the data",
            "give all ranks the same data set; if each has its own files, leave out the sampler, and take as many "
            "batches on all",
            seen="the DistributedSampler of rank 0 has 100 samples, that of rank 1 90: they do not divide the data",
            means="the sampler takes a part of what its rank has: of files that differ, the rest is never used",
        ),
        Rule(
            "dataset-split-differs-between-ranks",
            r"(the DistributedSampler of rank \d+ has other indices of the data set than [^:]*): they do not divide",
            "{0}: each rank has split the data in its own way",
            "split it with one seed on all ranks, as random_split(data, sizes, torch.Generator().manual_seed(0)): now "
            "one rank trains on what another one validates with",
            seen="the DistributedSampler of rank 0 has other indices of the data set than that of rank 1: they do not "
            "divide the data: ...",
            means="a split by numbers drawn at random, before which each rank was given a seed of its own, or none",
        ),
        Rule(
            "spawned-processes-form-own-group",
            r"(each of the \d+ ranks starts .*?, which forms? a group of (?:its|their) own)",
            "{0}",
            "start the processes as ranks: --procs-per-node (docs/from-tutorial-to-cluster.md)",
            seen="each of the 2 ranks starts a process, which forms a group of its own on its machine: ...",
            means="a script with mp.spawn on several nodes, each of which trains a model of its own",
        ),
        Rule(
            "peers-lost-repeatedly",
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
