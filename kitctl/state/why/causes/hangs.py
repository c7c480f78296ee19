"""Causes in hangs that were judged as such, and in ranks that leave. Pure.

Where ranks are while none takes a step is a fact (``JobState.standstill``) and no cause: a healthy job looks the same.
"""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

OTHER_GROUP: Final = r"says: (?:world_size|rank) \S+ is not this process's"
LOST_WORKER: Final = r"says: its multiprocessing\.Pool waits for a killed worker"
UNREAD: Final = r"\ba process whose output nobody reads\b"
UNREAD_QUEUE: Final = r"\ba process whose queue nobody reads\b"
LOST_THREADS: Final = r", forked without the thread that it waits for\b"
APART: Final = r"\branks? [\d, -]+ waits? in [^\n]*; each waits for others$"
NOT_ENDED: Final = r"\branks? [\d, -]+ ha(?:s|ve) failed \(.*?\), but (?:its|their) (?:exit handler|thread) goes on"
LATE: Final = r"^(the ranks of node \d+)\b[^\n]*? timed out after (\d+) ms in a collective"
_LATE_FIX: Final = "see what they do meanwhile: kitctl stacks; if they work, give init_process_group a longer timeout"
HANGS: Final = Family(
    "Hangs and collectives",
    "Running",
    (
        Rule(
            "collective-mismatch",
            r"\bcalled [^\n]*, where rank \d+ called ",
            "",
            "all ranks have to call the same collectives in the same order, with tensors of the same shape and type: "
            "look for a condition that differs between them, as one that leaves out a backward pass, and for a last, "
            "shorter batch",
            seen="rank 1 called all_reduce of [3] float32, where rank 0 called all_reduce of [4] float32",
        ),
        Rule(
            "collective-mismatch",
            r"Detected mismatch between collectives on ranks",
            "",
            "all ranks have to call the same collectives in the same order, with tensors of the same shape and "
            "type: look for a condition that differs between them",
            seen="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ...",
        ),
        Rule(
            "monitored-barrier-timeout",
            r"failed to pass monitoredBarrier|timed out waiting for monitoredBarrier",
            "",
            "the ranks that it names have not come to that barrier: see their logs; if they work, give "
            "monitored_barrier a longer timeout",
            seen="RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 30000 ms",
        ),
        Rule(
            "rank-ended-during-collective",
            r"\bfinished the collective in which rank \d+ lost it, ",
            "",
            "give the same function, shape and type to the last collective on all ranks, as by padding a last, shorter "
            "batch; if they are the same, let the ranks end together: dist.barrier() at the end of the script",
            seen="rank 0 finished the collective in which rank 1 lost it, and ended with exit code 0 at 12:00:03 UTC",
        ),
        Rule(
            "rank-ended-after-caught-error",
            r"\bended with exit code 0 at [^\n]*\blost it, after it had printed: ",
            "",
            "mend that error, which the script has caught: let it raise there (`raise` in the except), so that the "
            "rank fails with its traceback and the others do not go on without it",
            seen="rank 0 ended with exit code 0 at 12:00:03 UTC, 3 s before rank 1 lost it, after it had printed: "
            "KeyError: 'x'",
        ),
        Rule(
            "rank-exited-in-a-function",
            r"\bended with exit code 0 at [^\n]*, in sys\.exit\(\) at [^\n]*\blost it",
            "",
            "let no rank leave alone: see what leads one to that line; on a signal, set a flag on which all ranks "
            "agree before a step (all_reduce), or exit with another code than 0, so that the ranks are started again",
            seen="rank 1 ended with exit code 0 at 12:00:03 UTC, in sys.exit() at train.py:41 in on_signal, 0 s before "
            "rank 0 lost it",
        ),
        Rule(
            "rank-ended-before-others",
            r"\bended with exit code 0 at [^\n]*\blost it",
            "",
            "all ranks have to take the same number of steps, and end together: look for a condition that differs "
            "between them, such as a checkpoint that only one rank's folder has, or a rank's share of the data",
            seen="rank 0 ended with exit code 0 at 12:00:03 UTC, 3 s before rank 1 lost it",
        ),
        Rule(
            "rank-busy-beyond-hang-timeout",
            r"(?:^|\()hang: (.*busy \(it used.*)",
            "{0}",
            "raise policy.hangTimeout, or leave it `auto`, which waits for ranks that work",
            seen="hang: rank 2 (node 1) has been in step 30 for 10 min, busy (it used 0.9 cores)",
        ),
        Rule(
            "lock-file-not-released",
            r"(?:^|\()hang: (.*? for a lock file that no rank of this job holds)",
            "{0}",
            "remove the lock file that a killed build has left, `lock` in the extension's folder: in "
            "TORCH_EXTENSIONS_DIR, or ~/.cache/torch_extensions; nothing, if another job builds there",
            seen="hang: ranks 0-1 have been in FileBaton.wait for 900 s, at train.py:7 in load_extension, for a lock "
            "file that no rank of this job holds",
        ),
        Rule(
            "rank-or-world-size-overridden",
            r"(?:^|\()hang: (.*? although all ranks of this job are there: it is told of others)",
            "{0}",
            "leave out rank and world_size of init_process_group, and what sets RANK and WORLD_SIZE: kitctl does",
            seen="hang: ranks 0-1 have been in init_process_group for 900 s, at train.py:2, although all ranks of this "
            "job are there: it is told of others",
        ),
        Rule(
            "rank-or-world-size-overridden",
            OTHER_GROUP,
            "",
            "leave out rank and world_size of init_process_group, and what sets RANK and WORLD_SIZE: kitctl does; if "
            "the script needs so many ranks: --nodes, --procs-per-node",
            seen="no step for 20s: ranks 0-1 wait in init_process_group; rank 0 says: world_size 4 is not this "
            "process's WORLD_SIZE, which is 2",
        ),
        Rule(
            "ddp-forward-passes-differ",
            r"\bwaits? in DDP's broadcast of buffers\b[^\n]*; each waits for others$",
            "",
            "DistributedDataParallel broadcasts buffers in each forward pass, in eval() and no_grad(), too: where one "
            "rank alone runs the model (if rank == 0: validate()), call model.module, or let all ranks do it; else a "
            "loop ends sooner on one (equal shares of the data, drop_last=True)",
            seen="no step for 41s: rank 0 waits in DDP's broadcast of buffers at train.py:16 in validate, rank 1 waits "
            "in barrier at train.py:27; each waits for others",
            means="a model with buffers, as those of BatchNorm, of which one rank has called forward() once more",
        ),
        Rule(
            "send-without-receive",
            r"step for [^:]*: (?!.*\bwaits? in (?!send\b)).*\bwaits? in send\b.*; each waits for others$",
            "",
            "a send ends once its peer receives, and all ranks send first: let one rank of each pair call recv() "
            "before send(), or use batch_isend_irecv()",
            seen="no step for 1m27s: ranks 0-1 wait in send at train.py:9; each waits for others",
            means="each has been at that place for a while, and none receives",
        ),
        Rule(
            "receive-without-send",
            r"step for [^:]*: (?!.*\bwaits? in (?!recv\b)).*\bwaits? in recv\b.*; each waits for others$",
            "",
            "no rank sends what the others wait for: if all receive first, let one rank of each pair send first, or "
            "use batch_isend_irecv(); else look for a send() that a condition or a shorter loop leaves out",
            seen="no step for 1m27s: rank 0 waits in recv at train.py:12, rank 1 waits in recv at train.py:20; each "
            "waits for others",
            means="each has been at that place for a while, and none sends",
        ),
        Rule(
            "store-server-or-peers-missing",
            r"\bwaits? in TCPStore\b[^\n]*; each waits for others$",
            "",
            "one rank has to serve the store, and as many to connect as its world_size says: is_master=(rank == 0), at "
            "the address of that rank (MASTER_ADDR); or leave it out: init_process_group() has one",
            seen="no step for 40s: ranks 0-1 wait in TCPStore at train.py:23 in connect; each waits for others",
        ),
        Rule(
            "store-key-not-set",
            r"\bwaits? in store\.(?:get|wait)\b[^\n]*; each waits for others$",
            "",
            "no rank sets that key, as all wait: the name in set() has to be that in get() or wait(), with the same "
            "prefix, and one rank has to get there without waiting",
            seen="no step for 40s: ranks 0-1 wait in store.get at train.py:20; each waits for others",
        ),
        Rule(
            "closure-calls-differ-between-ranks",
            r"\bwaits? in [^\n]*\bin closure\b[^\n]*; each waits for others$",
            "",
            "LBFGS calls its closure as often as each rank's own loss asks for: average the loss over the ranks before "
            "the closure returns it, so that all decide alike",
            seen="no step for 40s: rank 0 waits in barrier at train.py:66, rank 1 waits in all_reduce of its backward "
            "pass at train.py:59 in closure; each waits for others",
        ),
        Rule(
            "collective-root-mismatch",
            r"\bwaits? in (broadcast(?:_object_list)?|scatter|reduce|gather)\b[^\n]* (?:from|to) (?:themselves|"
            r"(?:rank \d+|itself)\b[^\n]*\bwaits? in \1\b[^\n]* (?:from|to) (?:rank \d+|itself)) at [^\n]*"
            r"; each waits for others$",
            "",
            "name the same rank on all: src of broadcast() and scatter(), and dst of reduce() and gather(), as 0, "
            "and not the rank's own number",
            seen="no step for 40s: ranks 0-1 wait in broadcast of [4] float32 from themselves at train.py:9; each "
            "waits for others",
        ),
        Rule(
            "process-group-order-mismatch",
            r"\bwaits? in [^\n]*, of different groups; each waits for others$",
            "",
            "call the collectives of several groups in the same order on all ranks: each waits here in another group's "
            "call; look for a condition, a set or a thread that changes the order",
            seen="no step for 40s: ranks 0-1 wait in all_reduce at train.py:20, of different groups; each waits for "
            "others",
            means="the ranks are in both groups, and each has been in its call for a while",
        ),
        Rule(
            "ranks-waiting-in-different-calls",
            APART,
            "",
            "all ranks have to make the same collectives in the same order: look for one under a condition that "
            "differs between ranks (if rank == 0), for a loop that ends sooner on one (equal shares of the data, "
            "drop_last=True), and let all ranks call new_group() for each group",
            seen="no step for 40s: rank 0 waits in all_reduce of its backward pass at train.py:8, rank 1 waits in "
            "barrier at train.py:9; each waits for others",
            means="each has been at that place for a while, in calls that cannot be the same one",
        ),
        Rule(
            "failed-rank-still-running",
            NOT_ENDED,
            "",
            "mend that error; and let nothing wait for other ranks once a script has ended, as dist.barrier() in an "
            "exit handler does: they do not come. Threads: daemon=True",
            seen="no step for 20s: rank 1 has failed (ValueError: bad row), but its exit handler goes on at "
            "train.py:45 in write_summary, rank 0 waits in all_reduce of its backward pass",
            means="a script that has ended with an error, in a process that has not",
        ),
        Rule(
            "process-pool-worker-killed",
            LOST_WORKER,
            "",
            "fewer workers, smaller pieces, or more memory, for lack of which they are mostly killed; "
            "concurrent.futures.ProcessPoolExecutor fails where multiprocessing.Pool waits for ever",
            seen="no step for 20s: rank 0 waits for a pool of processes at train.py:8; rank 0 says: its "
            "multiprocessing.Pool waits for a killed worker (SIGKILL)",
        ),
        Rule(
            "child-process-output-unread",
            UNREAD,
            "",
            "the process waits until there is room in its pipe: read what it prints while it runs, as communicate() "
            "and subprocess.run(..., capture_output=True) do, or give it a file, or stdout=subprocess.DEVNULL",
            seen="no step for 20s: rank 0 waits for a process whose output nobody reads at prepare.py:12, rank 1 waits "
            "in barrier at train.py:9",
            means="a process with stdout=PIPE or stderr=PIPE, for whose end wait() waits",
        ),
        Rule(
            "child-process-queue-unread",
            UNREAD_QUEUE,
            "",
            "a process ends once all that it has put into a queue, or sent, is read: get() and recv() first, and "
            "join() then",
            seen="no step for 20s: rank 0 waits for a process whose queue nobody reads at train.py:23 in rollouts, "
            "rank 1 waits in barrier at train.py:9",
        ),
        Rule(
            "forked-without-threads",
            LOST_THREADS,
            "",
            "a fork has none of the other threads: a lock that one had is never released there, and OpenMP's are gone; "
            "start processes by spawn (multiprocessing.get_context('spawn'), multiprocessing_context='spawn' of a "
            "DataLoader), or before there are threads, with torch.set_num_threads(1) in them",
            seen="no step for 20s: rank 0 waits for a pool of processes at train.py:28 in main, which is at "
            "train.py:12 in whiten, forked without the thread that it waits for",
        ),
        Rule(
            "peer-connection-refused",
            r"(rank \d+) lost its peers \(.*?connectFullMesh failed.*?Connection refused",
            "{0} found nobody at the address that another rank had left in the store of the process group",
            "give each process group a store of its own: FileStore another file, which no earlier group or run has "
            "used, or a PrefixStore around it; else that rank has ended before the group was complete: see its log",
            seen="rank 1 lost its peers (RuntimeError: Gloo connectFullMesh failed with timed out connecting: "
            "SO_ERROR: Connection refused, ...",
        ),
        Rule(
            "collective-timeout",
            r"(rank \d+) lost its peers \(.*?(?:[Tt]imed out|timeout).*",
            "{0} timed out in a collective, again and again: the other ranks do not come in time",
            _LATE_FIX,
        ),
        Rule(
            "collective-timeout",
            LATE,
            "{0} timed out after {1} ms in a collective: the other ranks did not come in time",
            _LATE_FIX,
            seen="the ranks of node 1, pod run-1-x7k2p timed out after 20000 ms in a collective",
        ),
        Rule(
            "rank-hang",
            r"(?:^|\()hang: (.*)",
            "{0}",
            "fix the named line: all ranks have to call the same collectives in the same order, with tensors of the "
            "same shape, and none may wait",
            seen="hang: rank 2 (node 1) has been in the forward pass of step 30 for 30 s, at train.py:12",
        ),
    ),
)
