"""Causes in calls of torch.distributed and its wrappers, in torch's own words. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, quoted

_LESS: Final = "fewer or smaller ones, smaller batches, or a larger --memory"
DISTRIBUTED: Final = Family(
    "Collectives and sharded models",
    "Failed",
    (
        quoted(
            "process-group-initialized-twice",
            r"trying to initialize the default process group twice",
            "a library has made it already (accelerate, Lightning, an earlier call): if not dist.is_initialized(): ...",
            "ValueError: trying to initialize the default process group twice!",
        ),
        quoted(
            "torch-built-without-nccl",  # as kittrain.outcome.causes has it, and the next one
            r"Distributed package doesn't have NCCL built in",
            "this torch is built without NCCL, as those for CPUs are: let the script use the backend gloo; or choose "
            "an image whose torch is built for CUDA, and give each node GPUs (--gpus-per-node N)",
            "RuntimeError: Distributed package doesn't have NCCL built in",
            local="this torch is built without NCCL, as those for CPUs are: let the script use the backend gloo; or "
            "install one that is built for CUDA, if this machine has GPUs",
        ),
        quoted(
            "torch-built-without-gloo",
            r"Distributed package doesn't have Gloo built in",
            "choose an image whose torch has gloo, such as pytorch/pytorch; or give each node GPUs "
            "(--gpus-per-node N), where the backend is nccl",
            "RuntimeError: Distributed package doesn't have Gloo built in",
            local="install a torch that has gloo, as PyPI's has; on GPUs the backend nccl needs none",
        ),
        quoted(
            "process-group-backend-unavailable",
            r"Invalid backend: |Unknown c10d backend type|Distributed package doesn't have \w+ built in",
            "init_process_group('nccl') on GPUs, 'gloo' without; or leave it out, which takes both",
            "ValueError: Invalid backend: 'ncccl'",
        ),
        quoted(
            "collective-unsupported-by-backend",
            r"RuntimeError: (?:\[[^\]]*\] ?)?(?:Invalid scalar type|Unconvertible NCCL type)"
            r"|Tensors must be contiguous|Invalid usage of tensors with different dtypes"
            r"|(?:ReduceOp|reduce operation)\.?\w* ?(?:AVG|with Gloo)|(?:ProcessGroup(?:Gloo|NCCL|MPI)"
            r"|Backend \w+) does not "
            r"support",
            "that backend has no such operation or type: float32 or int64 tensors, .contiguous(), SUM and a division "
            "in place of AVG, all_gather in place of gather; nccl has most, on GPUs",
            "RuntimeError: ProcessGroupGloo does not support reduce_scatter",
        ),
        quoted(
            "collective-tensor-size-mismatch",
            r"RuntimeError: ProcessGroup\w+::\w+: invalid tensor size at index",
            "a collective's tensors have one shape, on all ranks, and so have those of its list: exchange the sizes "
            "first, and pad to the largest; or all_gather_object, of what is small",
            "RuntimeError: ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected (4), got (3))",
        ),
        quoted(
            "world-size-unsuitable",
            r"rank should be within the world_size set by|Mesh should not be bigger than default world size"
            r"|device_mesh\b.*?(?:world size|WORLD_SIZE)|must be divisible by [^\n]*(?:parallel|world_size|world size)"
            r"|world[_ ]size [^\n]*(?:must be|not) divisible|Rank \d+ is out of range\. Valid ranks are",
            "the script's groups need another number of ranks than the job has: --nodes times --procs-per-node, or "
            "compute their sizes from WORLD_SIZE",
            "RuntimeError: Mesh should not be bigger than default world size 2, but found 4 ranks!",
        ),
        quoted(
            "rank-not-in-process-group",
            r"(?:Global )?[Rr]ank \d+ is not part of (?:the )?group|is not registered, please create group with"
            r"|(?:src|dst)[`'\w/ ]*rank \d+ not in group|Invalid (?:process group|ProcessGroup) specified",
            "only members call a group's collectives, and src and dst are ranks of the whole job; all ranks call "
            "new_group(), in the same order",
            "ValueError: Global rank 1 is not part of group <torch.distributed.ProcessGroup>",
        ),
        quoted(
            "ddp-static-graph-changed",
            r"training graph has changed in this iteration",
            "static_graph=True needs the same parameters used in each step: leave it out, with "
            "find_unused_parameters=True",
            "RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused in first "
            "...",
        ),
        quoted(
            "ddp-buffer-changed-in-place",
            r"BroadcastBackward is a view and is being modified inplace",
            "a buffer or parameter that DDP broadcasts is changed in place in forward(): x = x + 1 instead of x += 1, "
            "or broadcast_buffers=False",
            "RuntimeError: Output 0 of BroadcastBackward is a view and is being modified inplace.",
        ),
        quoted(
            "fsdp-device-mismatch",
            r"FSDP-managed module unexpectedly has parameters on|Inconsistent compute device and `device_id`",
            "torch.cuda.set_device(LOCAL_RANK) first, and FSDP(model, device_id=torch.cuda.current_device())",
            "RuntimeError: An FSDP-managed module unexpectedly has parameters on cpu.",
        ),
        quoted(
            "lazy-parameters-uninitialized",
            r"Modules with uninitialized parameters can't be used with",
            "run one batch through the model before it is wrapped: lazy layers get their shape from it",
            "RuntimeError: Modules with uninitialized parameters can't be used with `DistributedDataParallel`.",
        ),
        quoted(
            "model-on-several-devices",
            r"input module must be on the same type of devices|FSDP requires homogeneous devices"
            r"|[Mm]odule has parameters on (?:multiple|different) devices",
            "one device for all of the model before it is wrapped: model.to(device)",
            "RuntimeError: DistributedDataParallel's input module must be on the same type of devices, ...",
        ),
        quoted(
            "fsdp-parameters-not-uniform",
            r"requires uniform dtype but got|expects uniform original parameter dtype|flatten tensors with (?:uniform"
            r"|the "
            r"same) ",
            "FSDP joins a block's parameters: one type for all of them (model.to(torch.bfloat16)), "
            "use_orig_params=True if some are frozen, or fully_shard(), which needs neither",
            "ValueError: Must flatten tensors with uniform dtype but got torch.float16 and torch.float32",
        ),
        quoted(
            "sharded-parameter-not-gathered",
            r"are out of bounds for storage of size 0|'weight' must be 2-D",
            "a sharded weight is used outside of its module's forward(), where it is not gathered: call the wrapped "
            "model itself; FSDP.summon_full_params() or full_tensor() give it whole",
            "RuntimeError: setStorage: sizes [4096, 4096], ... are out of bounds for storage of size 0",
        ),
        quoted(
            "checkpoint-size-mismatch",
            r"Size mismatch between saved (\S+ ?\S*) and current|size mismatch between saved",
            "the checkpoint is of a model with other sizes: load it into one that is built alike",
            "ValueError: Size mismatch between saved torch.Size([8, 4]) and current: torch.Size([4, 4]) for w",
        ),
        quoted(
            "spawned-process-killed",
            r"ProcessExitedException: process \d+ terminated with signal SIGKILL",
            f"a process that the script started was killed, mostly for lack of memory: {_LESS}",
            "ProcessExitedException: process 0 terminated with signal SIGKILL",
        ),
        quoted(
            "spawned-process-ended-by-signal",
            r"ProcessExitedException: process \d+ terminated with signal SIG",
            "a process that the script started has crashed in native code: see the last lines, and --env "
            "PYTHONFAULTHANDLER=1 for where",
            "ProcessExitedException: process 0 terminated with signal SIGSEGV",
        ),
        quoted(
            "non-leaf-tensor-serialized",
            r"Cowardly refusing to serialize non-leaf tensor",
            ".detach() what goes to another process, or through a queue",
            "RuntimeError: Cowardly refusing to serialize non-leaf tensor which requires_grad, ...",
        ),
        quoted(
            "nccl-internal-error",
            r"ncclInternalError",
            "versions of NCCL, driver or network library do not fit together: --nccl-debug INFO shows where; the same "
            "image on all nodes",
            "DistBackendError: NCCL error in: x.cpp:1691, internal error, ncclInternalError: Internal check failed.",
        ),
    ),
    of_code=True,
)
