"""Writes docs/troubleshooting.md from the rules of ``kitctl why``, of agents, and of API servers' answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kitctl.state.facts import JobFacts
from kitctl.state.phase import derive
from kitctl.state.why.explain import explain
from kitctl.state.why.rule import Rule, Stage
from kitctl.state.why.tables import FAMILIES
from kitctl.targets.cluster.connection.api_errors import ERROR_RULES
from kitjob.report import Termination
from kittrain.outcome.causes import CAUSES, Cause, Kind, cause_of

INTRODUCTION: Final = """\
# Troubleshooting

Written by `make docs` from the rules themselves, so that what is told here is what is told of a job.

Start with `kitctl why NAME`: one cause, one fix, how to continue, and what shows it. The same cause heads `kitctl
status NAME`, which adds the state of each node, `kitctl wait`, `submit --wait`, `doctor NAME` and `list -o wide`.
Then `kitctl logs NAME`; in a terminal it folds equal lines and frames of libraries, unless `--full` is given. `kitctl
doctor` checks a job's prerequisites before you submit it, and `kitctl doctor NAME` diagnoses a submitted one. A job
that has failed, stands still or is stopped is never `ok` there.

Each cause has a code, which stays the same where its words change: `kitctl why -o json`, `status` and `list` have it
as `code`, and this counts what ends jobs:

```sh
kitctl list -A -o json | jq -r '.items[] | select(.phase == "Failed") | .code' | sort | uniq -c | sort -rn
```

Below are the rules by the phase in which their causes are told for the most part. The first that matches is told;
what matches none is told in its own words, with the place in the script where it was raised, and what names in
that line had: numbers, sizes, types and keys, never a text. NAME, OTHER and THIRD
stand for what the message names. Warnings in a job's log say themselves what to do.
"""
SUBMITTING: Final = """\
## Submitting

An error names its fix, and exit code 2 means that nothing was changed. With `this is a bug` it is an unexpected
error: `KITCTL_DEBUG=1` shows its traceback, please report it. Exit code 102, no such job: it is in another namespace
or target, `kitctl list -A` and `--target`.

### What an API server refuses

The first row that matches: HTTP status, and words of the answer.

| Status | Answer | Fix |
|---|---|---|
"""
CHAPTERS: Final[Mapping[Stage, str]] = {
    "Pending": """\
No node runs yet. The job starts by itself once it can.

`init container fetch has run for 95 s` is what the ranks wait for, no judgement: nothing to do if it copies what is
large; else `kubectl logs POD -c fetch` shows what it does.""",
    "Starting": """\
Nodes run, and their ranks do not yet: code is unpacked, packages are installed, the nodes meet. `kitctl logs NAME
--node 0` shows which nodes are missing; `rendezvous.joinTimeout` limits the wait.""",
    "Running": """\
Ranks train, or, in the phase `Recovering`, a new group forms after a loss: `status` names the node that was lost.

`no step for 42s: ...` is where the ranks are while none takes a step, [no judgement](trainer.md#no-step-for-a-while):
nothing to do if that evaluates, saves or compiles; else `kitctl stacks NAME` shows [where each one
is](into-a-rank.md), the odd one first. A rank that `status` calls slow keeps all others waiting in each step: its
machine, its GPU's clocks, its share of the data.""",
    "Failed": """\
`policy.maxRestarts` failures without a new snapshot, or a new checkpoint of the script's own, in between, or one that
[a restart cannot fix](decisions/0033-not-retried.md): exit code 100. The line `then:` has the command that continues
from the last snapshot, once the cause is mended: Kubernetes cannot start an object again that has failed, so there it
is `kitctl submit --name NAME --replace --resume`.""",
}
RANKS: Final = """\
### Errors of ranks

The agent of the failed rank's node logs each failure: `[agent 1]: rank 5 failed (...), restart 1 of 3`. `kitctl
status -o json` has it as `failure`: `error`, `fix`, `rank`, `node`, `traceback`, and `lines`, the last ten of that
rank's output, without terminal control sequences. What follows are the errors whose kind is known, and whether the
ranks are started again; any other is, and is told with its place in the script.

| Error | Started again | Fix | On the local target | Code |
|---|---|---|---|---|
"""
RESTARTS: Final[Mapping[Kind, str]] = {
    "own": "yes",
    "left": "yes",
    "hang": "yes; the first at a step is not counted",
    "storage": "yes, 100 times",
    "peer": "yes, 100 times",
}
PEERS: Final = (
    "| any other error of the process group, its store or a connection, such as `DistBackendError: ...` | yes, 100 "
    "times | nothing: another rank ended, or its node, and that is the cause | - | `peer-lost` |"
)


def page() -> str:
    """The whole page."""
    chapters = [f"## {stage}\n\n{text}\n\n" + "\n".join(_sections(stage)) for stage, text in CHAPTERS.items()]
    return "\n".join(
        [INTRODUCTION, SUBMITTING + "\n".join(_refused()), "", *chapters, RANKS + "\n".join(_errors()), ""]
    )


def _refused() -> Iterator[str]:
    for rule in ERROR_RULES:
        status, words = rule.status or "any", f"`{rule.words.strip()}`" if rule.words else "any"
        yield f"| {status} | {words} | {_escaped(rule.fix.replace('{keys}', 'KEYS')) or 'as it says'} |"


def _sections(stage: Stage) -> Iterator[str]:
    for family in FAMILIES:
        if family.stage == stage:
            rows = [
                f"| {_told(rule)} | {_fix(rule)} | {_filled(rule.local) or '-'} | `{rule.code}` |"
                for rule in family.rules
            ]
            head = "| Told | Fix | On the local target | Code |"
            yield "\n".join([f"### {family.title}", "", head, "|---|---|---|---|", *rows, ""])


def _told(rule: Rule) -> str:
    """A cause in words; else the message as it is seen. Then what it does not say."""
    means = f": {_filled(rule.means)}" if rule.means else ""
    subject = re.split("[:,] ", rule.cause)[0]
    in_words = _has_words(subject) and (_has_words(rule.fix) or not rule.seen)  # that message has the fix, too
    return (_filled(rule.cause) if in_words or not rule.seen else _code(rule.seen)) + means


def _fix(rule: Rule) -> str:
    """What to do; where the message itself says it, what it says in the example."""
    found = None if _has_words(rule.fix) else rule.matches(rule.seen)
    return f"as it says, here: {_escaped(rule.fixed(found, local=False))}" if found else _filled(rule.fix)


def _has_words(text: str) -> bool:
    """Whether a text has words of its own, next to the places for what a message names."""
    return bool(re.search(r"\w", re.sub(r"\{\d\}", "", text)))


def _errors() -> Iterator[str]:
    for row in CAUSES:
        if row.seen:
            fix, local = _advised(row, "cluster"), _advised(row, "local")
            yield f"| {_code(row.seen)} | {_again(row)} | {fix} | {'-' if local == fix else local} | `{row.code}` |"
    yield PEERS


def _again(row: Cause) -> str:
    if row.permanent:
        return "no"
    return "once" if row.deterministic else RESTARTS[row.kind]


def _advised(row: Cause, target: str) -> str:
    """The fix that is told of a job on that target which has failed so."""
    error, *lines = row.seen.split("\n")
    fix = row.fix if row.called else cause_of(error, lines).fix  # the example has no traceback
    failure = Termination(outcome="fatal", reason="", rank=0, node=0, error=error, lines=tuple(lines), fix=fix)
    job = JobFacts(
        name="NAME", namespace="default", target=target, kind="IndexedJob", node_range="2", desired_nodes=2,
        created=0.0, result="Failed", failure=failure,
    )  # fmt: skip
    return _escaped(explain(derive(job), 0.0).fix)


def _code(text: str) -> str:
    return f"`{' ... '.join(text.split(chr(10))).replace('|', '¦')}`"


def _filled(text: str) -> str:
    """With names instead of numbered places."""
    return _escaped(text.format("NAME", "OTHER", "THIRD"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
