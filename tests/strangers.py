"""Errors that scripts make themselves, with words that mean something else in those of torch, Python or Kubernetes.

No rule may know them: a wrong fix is worse than none.
"""

from __future__ import annotations

from typing import Final

STRANGERS: Final = (
    # What kitctl says of pods and machines.
    "ValueError: status OOMKilled is not known",
    "ValueError: machine room-3 does not answer: no such sensor",
    "ValueError: node 3, pod orca-7 is lost: its machine has not answered for a day",
    "ValueError: node 0 is lost: its machine does not answer",
    "KeyError: 'Evicted from memory cache'",
    "RuntimeError: Evicted: disk shard 4",
    "ValueError: sidecar audio of clip-3 has ended 2 times (exit code 1)",
    "ValueError: init container loss of model failed (exit code 1)",
    "RuntimeError: the requirements cannot be installed on robot 4",
    "RuntimeError: this run has no secret sauce",
    "ValueError: event PreemptionByScheduler is in no vocabulary",
    "ValueError: ErrImagePull is no label of this data set",
    "ValueError: Insufficient variance in column 3",
    "ValueError: waits in queue research",
    "ValueError: FailedMount is no label of this data set",
    "ValueError: answer 'exceeded quota: small' is no class",
    "ValueError: 3 GPUs requested, but 2 visible in the picture",
    # Of other services' deadlines.
    "DeadlineExceeded: 504 Deadline Exceeded",
    "DeadlineExceeded: the auction ran longer than 30s",
    # Memory, files and disks in another sense.
    "RuntimeError: not enough memory cells in the LSTM: 4 < 8",
    "ValueError: Cannot allocate memory bank 3 to head 2",
    "ValueError: no handler for a MemoryError is given",
    "ValueError: File too large: at most 10 MB are taken",
    "RuntimeError: can't start new thread of a conversation that is closed",
    "RuntimeError: Thread creation failed for forum 7",
    "ValueError: No usable temporary directory is configured for exports",
    "ValueError: unable to open /home/me/torch_data/index.json: it is version 3",
    "ValueError: unable to write to the shared memory of agent 4: it is read-only",
    "RuntimeError: No space left on device map for layer 7",
    "ValueError: Read-only file systems are not supported by this cache",
    "ValueError: Disk quota exceeded flag is not boolean",
    "ValueError: /data/a.wav: file too short (0.2 s)",
    "ValueError: Ran out of input tokens for beam 3",
    "ValueError: No data left in file queue",
    "ValueError: Too many open files: 'a.csv' is one of 9 that have no label",
    # Models, losses and data in another sense.
    "ValueError: the loss is expected to be a scalar",
    "ValueError: the loss is not in [l1, l2]",
    "ValueError: metadata is None",
    "AssertionError: metadata is None",
    "ValueError: metadata read failed for song 7",
    "FileNotFoundError: [Errno 2] No such file or directory: 'corpus.metadata'",
    "ValueError: num_samples should be a positive integer, got -3",
    "ValueError: schema 11 is above the maximum supported version 10",
    "IndexError: index 12 is out of bounds for axis 0 with size 10",
    "ValueError: Target 3 is out of range of the arm",
    "ValueError: Unsupported operand 60 of the calculator",
    "ValueError: params of the filter in this process with sizes 3 and 4",
    "ValueError: Data-dependent branching factor has to be > 1",
    "ValueError: the bootstrapping phase needs at least 10 samples",
    "TypeError: '<' not supported between instances of 'int' and 'str'",
    "ValueError: overhang: 3 pixels",
    "ValueError: hang: no such class",
    "RuntimeError: fp16 mixed precision requires a GPUs list",
    "ValueError: unexpected pos 3 vs 4 in the tagger",
    "ValueError: index out of range in self-attention mask",
    "ValueError: expected scalar type column but found none",
    "RuntimeError: Tensors must be CUDAs or dense",
    "ValueError: Stale file handle of shard 4",
    "ValueError: unsupported locale setting 'xx' in the form",
    # Names and requests in another sense.
    "ValueError: name resolution has to be 224 or 336",
    "ValueError: a table of Too Many Requests is needed",
    "KeyError: 'ProxyError'",
    "ValueError: Unable to locate credentials of user 7",
    "ValueError: 403 Client Errors are in the log, more than the limit",
    "ValueError: Address already in use by contact 7",
    "ValueError: ECC error correction needs n > k",
    "KeyError: 'Xid'",
    "ValueError: SIGXFSZ is no signal of a traffic light",
)
