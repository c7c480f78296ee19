"""Causes in how a container or a process was ended. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

_LESS: Final = "use less: fewer data loader workers, smaller batches, files that are read on demand"
_SHARED: Final = "raise sharedMemory (and the memory limit, which it counts towards), or use fewer data loader workers"
_MAPPED: Final = (
    "a file that the data set maps (np.memmap) was truncated meanwhile, or its disk is full: write new files, and "
    "os.replace() them"
)
_SPAWN: Final = "if its own error above speaks of bootstrapping, the script needs: if __name__ == '__main__':"
PODS: Final = Family(
    "Ends of pods",
    "Failed",
    (
        Rule(
            "container-outlives-ranks",
            r"the ranks have ended, and (container (\S+)) of (\S+) has not",
            "the ranks have ended, and {0} keeps the pod",
            "kubectl exec {2} -c {1} -- kill 1 ends it; next time have it among pod.sidecars, which end with the ranks",
        ),
        Rule(
            "sidecar-outlives-ranks",
            r"(the ranks have ended, and sidecar (\S+)) of \S+ (has not: it is killed \d+ s after them)",
            "{0} {2}",
            "nothing: the job ends then; a sidecar that ends on SIGTERM ends it at once: mend {1} in pod.sidecars",
            seen="the ranks have ended, and sidecar proxy of run-0-x7k2p has not: it is killed 30 s after them",
        ),
        Rule(
            "deadline-exceeded",
            r"^\s*DeadlineExceeded\W+(ran longer than \S+)",
            "{0}",
            "give it more time: --deadline, which counts from the submission",
            seen="DeadlineExceeded: ran longer than 12h",
        ),
        Rule(
            "deadline-exceeded",
            r"^\s*DeadlineExceeded\b",
            "",
            "give it more time: --deadline, which counts from its start",
            seen="DeadlineExceeded: Job was active longer than specified deadline",
        ),
        Rule(
            "empty-dir-limit-exceeded",
            r"^\s*(?:node \d+: )?Evicted: .*?Usage of EmptyDir volume \"([^\"]+)\" exceeds the limit \"([^\"]+)\"",
            "the pod has written more than {1} into its volume {0}, and was evicted",
            "raise that limit (of memory: sharedMemory), or write to a volume: --volume",
        ),
        Rule(
            "liveness-or-startup-probe-failed",
            r"^\s*(?:before: )?(?:node \d+: )?Unhealthy: (Liveness|Startup) probe failed: ",
            "the ranks' container is killed, as its {0} probe fails",
            "leave that probe out: kitctl itself sees ranks that fail or hang; or let what it asks answer in time "
            "(metrics.enabled serves /metrics at metrics.port)",
        ),
        Rule(
            "sysctl-forbidden",
            r"^\s*(?:before: )?(?:node \d+: )?SysctlForbidden: .*?forbidden sysctl: \W*([\w./-]*\w)",
            "the machine refuses the pod: its kubelet does not allow the sysctl {0}",
            "leave {0} out of pod.spec.securityContext.sysctls, or have the machines' kubelets allow it "
            "(allowedUnsafeSysctls)",
        ),
        Rule(
            "apparmor-profile-unavailable",
            r"^\s*(?:before: )?(?:node \d+: )?AppArmor: ",
            "",
            "load that profile on the machines, choose machines that have it (scheduling.nodeSelector), or leave it "
            "out of the pods",
            seen="AppArmor: Pod was rejected: Cannot enforce AppArmor: profile ... is not loaded",
        ),
        Rule(
            "node-shut-down",
            r"^\s*(?:node \d+: )?(?:NodeShutdown|Terminated): .*node shutdown",
            "the machine of a pod is shut down",
            "nothing: its node is replaced on another machine once there is room",
        ),
        Rule(
            "evicted-for-memory",
            r"^\s*(?:node \d+: )?Evicted: .*?memory",
            "",
            f"--memory, which sets request and limit, or {_LESS}",
            seen="Evicted: The node was low on resource: memory",
        ),
        Rule(
            "evicted-for-disk",
            r"^\s*(?:node \d+: )?Evicted: .*?(?:ephemeral|disk|DiskPressure)",
            "",
            "write less to the pod's own disk, or to a volume: --volume",
            seen="Evicted: The node was low on resource: ephemeral-storage",
            means="the kubelet measures what a pod has written now and then, volumes about once a minute: a pod that "
            "has written too much may go on for a minute or more",
        ),
    ),
    of_ranks=False,
)
ENDS: Final = Family(
    "Ends of containers and processes",
    "Failed",
    (
        Rule(
            "limit-range-memory-too-small",
            r"OOMKilled\b.*? which the namespace's LimitRange sets",
            "",
            "--memory with more, up to the maximum that kubectl describe limitrange shows; or have that raised",
            seen="OOMKilled (exit code 137, the limit is 256Mi, which the namespace's LimitRange sets)",
        ),
        Rule(
            "collective-mismatch",
            r"DefaultCPUAllocator: (?:not enough|can't allocate) memory: you tried to allocate \d{15,} bytes",
            "the ranks call different collectives: one has taken another's data for the size of its own",
            "all ranks have to call the same collectives in the same order: look for one that only some of them call, "
            "before the one in the traceback",
            called=r"/torch/distributed/distributed_c10d\.py\W, line \d+, in \w+_object(?:_list)?\n",
            seen="DefaultCPUAllocator: can't allocate memory: you tried to allocate 1795805313113641494 bytes",
            means="in all_gather_object, or another collective of objects, which sends its sizes first",
        ),
        Rule(
            "out-of-memory",
            r"OOMKilled \(|^OOMKilled$|killed by SIGKILL: out of memory"
            r"|(?:^|\n|\(|^exit code \d+: )(?:[\w.]+\.)?_?(?:Array)?MemoryError(?::| \(|\n|$)"
            r"|Cannot allocate memory(?! \w)|DefaultCPUAllocator: (?:not enough|can't allocate) memory",
            "",
            f"raise resources.limits.memory, or {_LESS}",
            local=f"{_LESS}, or fewer ranks: they share this machine's memory",
            seen="killed by SIGKILL: out of memory: the limit is 8.0 GiB",
        ),
        Rule(
            "file-size-limit-exceeded",
            r"\[Errno 27\]|File too large(?: \(os error|$|\n)|killed by SIGXFSZ",
            "",
            "raise the limit of a file's size (ulimit -f), or write to a file system that holds larger ones",
            seen="[Errno 27] File too large",
        ),
        Rule(
            "alarm-timer-expired",
            r"^killed by SIGALRM|\(killed by SIGALRM",
            "",
            "a timer of the script or a library has ended it: call signal.alarm(0) once what it limits is done, also "
            "where that fails (finally); or a command's own, such as timeout",
            seen="killed by SIGALRM",
        ),
        Rule(
            "cpu-time-limit-exceeded",
            r"^killed by SIGXCPU|\(killed by SIGXCPU",
            "",
            "raise the limit of its processor time, ulimit -t, or RLIMIT_CPU where the script sets it",
            seen="killed by SIGXCPU",
        ),
        Rule(
            "broken-pipe",
            r"^killed by SIGPIPE|\(killed by SIGPIPE|\bBrokenPipeError: ",
            "",
            "it wrote to a pipe or a connection whose reader has ended: see how that has (a program that it started, "
            "whose output and exit code tell); leave SIGPIPE as Python has it, for an error with its line",
            seen="killed by SIGPIPE",
        ),
        Rule(
            "signal-not-handled",
            r"^killed by SIG(?:USR[12]|HUP|PROF|VTALRM|QUIT|IO)\b|\(killed by SIG(?:USR[12]|HUP|PROF|VTALRM|QUIT|IO)\b",
            "",
            "a process has sent it that signal, which ends one that does not handle it: handle it by signal.signal() "
            "before anything sends it, in each process that may get it (a profiler, a scheduler's warning)",
            seen="killed by SIGUSR1",
        ),
        Rule(
            "too-many-open-files",
            r"\[Errno 24\] Too many open files: '(?!/dev/shm|/proc)([^']+)'",
            "",
            "close what the script opens, with open(...) as file; what a data set keeps open for each item adds up; or "
            "raise the limit of open files (ulimit -n)",
            seen="OSError: [Errno 24] Too many open files: 'data/shard-117.bin'",
        ),
        Rule(
            "temporary-directory-unusable",
            r"No usable temporary directory found in",
            "",
            "free space where temporary files go, mount a volume there, or name another folder: --env TMPDIR=...",
            local="free space where temporary files go, or name another folder: --env TMPDIR=...",
            seen="No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/workspace']",
            means="no file can be written there: the disk is full, or limited",
        ),
        Rule(
            "too-many-processes-or-threads",
            r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable|can't start new thread(?! \w)"
            r"|libgomp: Thread creation failed|pthread_create failed",
            "",
            "start fewer processes and threads (data loader workers, OMP_NUM_THREADS), or raise the limit of the pod, "
            "which is the kubelet's podPidsLimit",
            local="start fewer processes and threads (data loader workers, OMP_NUM_THREADS), or raise `ulimit -u`",
            seen="BlockingIOError: [Errno 11] Resource temporarily unavailable",
            means="no further process, or thread, may be started",
        ),
        Rule(
            "data-loader-worker-exited",
            r"DataLoader worker .* exited unexpectedly with exit code \d+",
            "",
            f"see what it printed before, or run with num_workers=0, which shows its error: it ended itself; {_SPAWN}",
            seen="RuntimeError: DataLoader worker (pid 7) exited unexpectedly with exit code 1. ...",
        ),
        Rule(
            "data-loader-worker-died",
            r"DataLoader worker .* (?:killed by signal: Killed|exited unexpectedly)",
            "",
            f"raise resources.limits.memory, or {_LESS}; {_SPAWN}",
            local=f"{_LESS}; {_SPAWN}",
            seen="DataLoader worker was killed by signal: Killed",
        ),
        Rule(
            "collective-mismatch",
            r"killed by SIGABRT.*?(?:[Rr]eceived data size doesn't match expected size"
            r"|op\.preamble\.length <= op\.nbytes)",
            "the ranks call different collectives, or exchange tensors of different shapes or types",
            "make the call, its shape and its type the same on all ranks there: pad a last, shorter batch, and give "
            "broadcast_object_list() lists of one length; and let no rank leave out a collective, or a backward pass, "
            "that others take part in",
        ),
        Rule(
            "mapped-memory-unavailable",
            r"killed by SIGBUS",
            "",
            f"{_SHARED}; if a mapped file was truncated or its volume is gone, fix that",
            local="free space in /dev/shm, or use fewer data loader workers; if a mapped file was truncated, fix that",
            seen="killed by SIGBUS at train.py:7 ... (/dev/shm has 64 MiB)",
        ),
        Rule(
            "worker-mapped-memory-unavailable",
            r"DataLoader worker .* Bus error \(/dev/shm has [\d.]+ [GT]iB\)",
            "",
            f"{_MAPPED}; else raise sharedMemory",
            local=f"{_MAPPED}; else free space in /dev/shm",
            seen="DataLoader worker was killed by signal: Bus error (/dev/shm has 23.5 GiB)",
            means="shared memory is large: what the worker maps is not there",
        ),
        Rule(
            "shared-memory-unavailable",
            r"DataLoader worker .* Bus error|shared memory\(shm\)"
            r"|unable to (?:open|mmap|write)[^\n]*(?:shared memory object|<?/torch_\d)",
            "",
            _SHARED,
            local="free space in /dev/shm, or use fewer data loader workers",
            seen="DataLoader worker (pid 7) is killed by signal: Bus error.",
        ),
        Rule(
            "ddp-construction-crash",
            r"^killed by SIGSEGV\b.*? in _ddp_init_helper\b",
            "killed by SIGSEGV in torch's own code, where DistributedDataParallel wraps the model",
            "leave out TORCH_DISTRIBUTED_DEBUG=DETAIL, if it is set: without GPUs torch crashes with it there",
        ),
        Rule(
            "native-code-crash",
            r"^killed by SIG(?:SEGV|FPE|ABRT)\b",
            "",
            "see the call in the stack; look for a library that was built for another version of Python or torch",
            seen="killed by SIGABRT at train.py:17 in step: native code aborted",
        ),
        Rule(
            "cpu-instruction-unsupported",
            r"^killed by SIGILL",
            "",
            "a library was built for another CPU: use another build, or set nodeSelector",
            local="a library was built for another CPU: use another build",
            seen="killed by SIGILL",
        ),
    ),
)
