"""Causes in snapshots: of another run, damaged, on a volume that does not take them. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

SNAPSHOTS: Final = Family(
    "Snapshots",
    "Running",
    (
        Rule(
            "snapshot-of-other-model",
            r"SnapshotError: .*?(its model has other parameters)",
            "the snapshots that it should resume from are of another model",
            "another --name for this model, or --from-scratch",
        ),
        Rule(
            "snapshot-of-other-optimizer",
            r"SnapshotError: .*?its optimizer (?:is ([^;,]+), not ([^;,]+)|has other parameters)",
            "the snapshots that it should resume from were taken with another optimizer",
            "use the old optimizer, or start a new run: another --name",
        ),
        Rule(
            "snapshot-of-other-data-order",
            r"SnapshotError: .*?its (batch size|seed|data set's size) is (\d+), not (\d+)",
            "the snapshots were taken in another order of the data: their {0} is {1}, not {2}",
            "restore the old setting; or --resume-state, which continues from their weights and optimizer in the new "
            "order; or start a new run: another --name",
        ),
        Rule(
            "snapshot-of-other-data",
            r"SnapshotError: .*?its data set is another one of the same length",
            "the snapshots that it should resume from were taken with other data",
            "use the old data, or start a new run: another --name. Data that are generated differ each time, unless "
            "they are seeded",
        ),
        Rule(
            "newest-snapshot-parts-lost",
            r"resumed at step \d+: .* lost, .*no node that is left has ",
            "",
            "nothing, if one loss was enough: copies were not yet made of that snapshot. If several nodes are lost at "
            "once, snapshots.mirror has a copy in a bucket, too",
            seen="resumed at step 40: 25 steps lost, as no node that is left has 1 of its 3 parts of step 60",
            means="nodes were lost that had all copies of a part of the newest snapshot",
        ),
        Rule(
            "no-whole-snapshot-left",
            r"SnapshotError: .*?no node that is left has (?:some of its parts|a part of any)",
            "nodes were lost at once that had all copies of parts of the snapshots, and none is whole any more",
            "start over: --from-scratch; with snapshots.mirror the next job goes on from a bucket when that happens",
        ),
        Rule(
            "snapshot-mirror-failing",
            r"this node stays for up to .* as what it trained would be lost: ",
            "",
            "let the bucket take what is in memory: then the job ends by itself, and kitctl cancel ends it without. "
            "What to mend is in the message; keys of a pod's environment cannot be changed while it runs",
            seen="training has ended, and this node stays for up to 1800 s in which nothing is taken, as what it "
            "trained would be lost: snapshots.mirror: s3://copies/run: the credentials may not read and write there "
            "(AccessDenied)",
            means="its only copy is in memory, and the mirror does not take it; snapshots.mirrorTimeout bounds that",
        ),
        Rule(
            "snapshot-mirror-incomplete",
            r"what they have trained is lost: (s3://\S+) does not have everything: "
            r"(its newest snapshot is of step \d+|it has no snapshot)",
            "what was in the nodes' memory is lost, as {0} did not take it: {1}",
            "once the bucket can be written, start it again from there; a longer snapshots.mirrorTimeout leaves more "
            "time to mend it",
        ),
        Rule(
            "all-snapshots-damaged",
            r"training does not start from scratch while there are some",
            "all snapshots are damaged, and training does not start from scratch while there are some",
            "restore a good one, as from a backup; or start over: --from-scratch. kitctl snapshots verify shows each "
            "damage",
        ),
        Rule(
            "snapshot-folder-not-shared",
            r"is not the same folder on all nodes",
            "each node has a folder of its own for snapshots, and ranks that hold a part of the state need a shared "
            "one",
            "use a volume that all nodes share (ReadWriteMany): --claim, or --storage-class",
        ),
        Rule(
            "snapshot-folder-not-writable",
            r"no snapshots can be written to .*?(?:Read-only file system|Permission denied|Operation not permitted)",
            "",
            "make the snapshots' volume writable for the job's user: see how it is mounted, the claim's access mode, "
            "security.fsGroup, and the machine's kernel log if a disk has become read-only; snapshots.enabled: false "
            "trains without snapshots",
            local="make that folder writable for you, or train without snapshots: snapshots.enabled: false",
            seen="SnapshotError: no snapshots can be written to /kit/snapshots: [Errno 30] Read-only file system: ...",
        ),
        Rule(
            "training-result-not-stored",
            r"training has ended, and its result is kept for up to .*: ",
            "",
            "free space at the path in the message: then it is stored, and the job ends by itself. kitctl cancel ends "
            "it without",
            seen="training has ended, and its result is kept for up to 10 min: the trained model cannot be written to "
            "/kit/snapshots: [Errno 28] No space left on device",
            means="all ranks hold it in memory, and try again; after that time the job fails, and continues from its "
            "last snapshot when it is started again",
        ),
        Rule(
            "snapshot-not-written",
            r"no snapshot at step \d+: ",
            "",
            "free space on its volume, or make it writable; snapshots.keep limits how many are kept. Training goes "
            "on, and the next snapshot is tried",
            seen="no snapshot at step 300: [Errno 28] No space left on device",
        ),
        Rule(
            "checkpoint-folder-not-shared",
            r"(rank \d+ has saved \S+ to its node's own folder: [^;]*); (.*)",
            "{0}",
            "{1}",
            seen="rank 0 has saved out/last.pt to its node's own folder: ranks of other nodes do not find it there; "
            "use --outputs out",
            means="a rank that is started on another node begins anew, or goes on from another state than the others",
        ),
        Rule(
            "checkpoint-not-loaded-on-restart",
            r"resumed at step 0: \d+ steps? lost; the script has loaded nothing that it saved in this run",
            "",
            "let it load its newest checkpoint when it starts, from a folder that all nodes share (--outputs); "
            "kitctl events says what has made the ranks start again",
            seen="resumed at step 0: 59 steps lost; the script has loaded nothing that it saved in this run",
        ),
        Rule(
            "checkpoint-not-saved",
            r"resumed at step 0: \d+ steps? lost; the script was not seen to save a checkpoint",
            "",
            "let it save one now and then (model, optimizer, step) to a folder that all nodes share (--outputs), and "
            "load the newest when it starts; kitctl events says what has made the ranks start again",
            seen="resumed at step 0: 59 steps lost; the script was not seen to save a checkpoint",
        ),
        Rule(
            "rank-storage-unusable",
            r"cannot use its storage \(",
            "",
            "check the volume of the path in the message; if one snapshot can never be read again, move its folder "
            "away: the one before it is used",
            seen="rank 0 cannot use its storage ([Errno 5] Input/output error: ...)",
            means="it has not answered for a minute; the ranks are started again until it does",
        ),
    ),
)
