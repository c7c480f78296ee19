"""Extracts what explains a failure from a rank's output and error: its last lines, the innermost error. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

from kitjob.report import WAITED_FOR_A_THREAD

LINES: Final = 10  # that are reported of a rank
NEAR: Final = 4  # lines at the end, of which one may be the error
WIDTH: Final = 200  # characters of each
LOSSES: Final = 3  # lines that show NaN, after which that is no mean of nothing
FATAL: Final = "Fatal Python error: "  # prefix of faulthandler's output
THREAD: Final = "Exception in thread "  # and its name
HEADER: Final = "Traceback (most recent call last):"
OTHER_GROUP: Final = "init_process_group waits for a group that is not this job's: "  # and why, as the hook says it
LOST_WORKER: Final = "its multiprocessing.Pool waits for a killed worker"  # and the signal
CHANGED_NOTHING: Final = "the optimizer has changed nothing: "  # and why
FADED: Final = "the learning rate was next to nothing for most of the training: "  # at how many steps
NO_PROCESSES: Final = "it has started 0 processes by torch.multiprocessing.spawn"
UNSEEN_PROGRAMS: Final = "the steps of programs that it has started are not seen: "  # how many, and of which script
SAME_ORDER: Final = "the DistributedSampler that shuffles has had the same order"  # and how often
REPLAYED: Final = "the DistributedSampler that shuffles was read once"  # and what tells that there was more to read
NOTHING_LOADED: Final = "load_state_dict(strict=False) has loaded none of "  # what
OWN_LOADED: Final = "load_state_dict was given the model's own tensors, and has changed nothing: "  # of which model
LEFT_GRADIENTS: Final = "no optimizer step has used the gradients of the last "  # and how many passes
TAKEN_FOR_TRUE: Final = "argparse has taken for True: "  # which argument
STILL_EVALUATES: Final = "the model was trained in evaluation mode after an evaluation: "  # with which layers
ANOTHER_MODEL: Final = "the model is not that of rank 0 any more: "  # which parameter, and when it was seen
STILL_TRAINS: Final = "the model was evaluated in training mode: "  # in how many passes, with which layers
UNAVERAGED: Final = "optimizer steps used gradients that were not averaged over the ranks: "  # how many
NEW_SCHEDULE: Final = "a learning rate schedule began anew, although its optimizer was resumed: "  # which
RESUMED_ALONE: Final = "a learning rate schedule was resumed, and its optimizer was not: "  # which
NO_BATCH_SEEN: Final = "a model was evaluated whose batch norms have seen no batch: "  # how many, of which model
NOT_OPTIMIZED: Final = "parameters that get gradients are in no optimizer, and one has others that no model has: "
NOT_RESUMED: Final = "a checkpoint's optimizer was not loaded: "  # which file's
NEVER_ZEROED: Final = "gradients are never zeroed: "  # in how many steps
ZEROED_UNUSED: Final = "zero_grad discards gradients that no optimizer step has used: "  # of how many passes
PROBABILITIES: Final = "a loss was given probabilities: "  # which, and of what
CLIPPED_SCALED: Final = "gradients were clipped while GradScaler had scaled them: "  # in how many steps
NOT_GIVEN: Final = "DDP does not average the gradients of parameters that it was not given: "  # which
NOT_REGISTERED: Final = "layers that their model does not know are not trained: "  # which
WARNED: Final = "torch has warned of a wrong result: "  # in its words
UNSEEN_CHANGE: Final = "the persistent workers of a DataLoader do not see what was set in its data set since: "  # what
SAME_DRAWS: Final = "the workers of a DataLoader draw the same numbers in each pass: "  # of which generator
SAME_SAMPLES: Final = "the workers of a DataLoader read the same samples: "  # how many, and of which data set
# Of hooks, what tells most first.
NOTES: Final = (
    *(
        CHANGED_NOTHING,
        NOTHING_LOADED,
        OWN_LOADED,
        TAKEN_FOR_TRUE,
        NOT_GIVEN,
        NOT_REGISTERED,
        NOT_OPTIMIZED,
        NEVER_ZEROED,
        ZEROED_UNUSED,
        CLIPPED_SCALED,
        PROBABILITIES,
    ),
    *(FADED, UNAVERAGED, ANOTHER_MODEL, STILL_EVALUATES, STILL_TRAINS, NO_BATCH_SEEN, NOT_RESUMED, NEW_SCHEDULE),
    *(RESUMED_ALONE, WARNED, SAME_ORDER, REPLAYED, UNSEEN_CHANGE, SAME_DRAWS, SAME_SAMPLES, LEFT_GRADIENTS),
)
SAME: Final = 10  # lines that show one loss, after which it does not change

_CHAINED: Final = re.compile(r"(?:The above exception was the direct cause|During handling of the above exception)\b")
_ESCAPES: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")  # colours, titles
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_ERROR: Final = re.compile(r"(\S+: )?(error|fatal)\b|[\w.]+(Error|Exception): ", re.IGNORECASE)
_COMPLAINT: Final = re.compile(
    r"\b(?:errors?|errno|failed|failure|fatal|refused|denied|unreachable|timed out|timeout|not found|"
    r"not (?:available|ready)|unavailable|forbidden|invalid|missing|no such)\b|(?:Error|Exception)\b",
    re.IGNORECASE,
)
# Words of an error in a last line, which is no metric of that name.
_BAD_END: Final = re.compile(
    r"^(?:\S+: )?(?i:error|fatal)\b(?!s? ?(?:rate|bars?|[=:]? ?[-+.]?\d|of [\w ]+[=:]? ?[-+.]?\d[\de.+-]*$))"
    r"|^[\w.]+(?:Error|Exception)(?:: |\(|$)"
    r"|^[^a-z]{0,60}\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:ERROR|CRITICAL) ?[-:|\]] "
    r"|\b[Aa]n (?:error|exception) (?:has )?occurred\b|\b(?:[Tt]raining|[Ee]poch|[Rr]un|[Jj]ob|[Ss]tep) failed\b"
    r"|\b[Ff]ailed (?:to|with) "
    r"|^[Ff]ailed\b"
)
# A handler's words for an error with which the script ends, in one of the last few lines: "training ended: KeyError".
_ENDED_EARLY: Final = re.compile(
    r"\b(?:ended|stopped|stopping|aborted|aborting|interrupted|terminated|exiting|crashed|gave up|giving up)\b"
    r".*\b(?!Keyboard)\w+(?:Error|Exception)\b"
)
_WAITS: Final = re.compile(r"\b(?:retry(?:ing)?|waiting for)\b", re.IGNORECASE)  # says less than what it waits for
_NUMBER: Final = re.compile(r"[\d.]+")
_USAGE: Final = re.compile(r"usage: ", re.IGNORECASE)
_THREAD: Final = re.compile(r"(Current thread|Thread|Stack) ")
_THREAD_ENDED: Final = re.compile(rf"{THREAD}.+:$")
_RAISED: Final = re.compile(r"[\w.]+")  # a traceback's first unindented line begins the error
_ENDS: Final = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")  # a traceback's first unindented line, which is its error
_OF_A_CHILD: Final = re.compile(
    r"RuntimeError: DataLoader worker .*exited unexpectedly|(?:[\w.]+\.)?(?:BrokenProcessPool|ProcessExitedException): "
)
_ABORTED: Final = re.compile(
    r"\s*what\(\):\s+(?:\[enforce fail at [^\]]*\] ?)?(?P<what>\S.*)"
    r"|(?:double free or corruption|(?:free|malloc|realloc|munmap_chunk)\(\): |corrupted (?:size|double-linked)).*"
    r"|\*\*\* .+: terminated"
    r"|.*: Assertion [`'].+' failed\.?$"
)
_OF_RANK: Final = re.compile(r"^\[rank\d+\]: ")  # which torch puts before each line
_LOSS: Final = re.compile(r"(?<![a-z])(?<!val_)(?<!val )loss['\"]?\s*[:=]?\s*[-+]?(?:\d|nan\b|inf\b)", re.IGNORECASE)
_LOSS_VALUE: Final = re.compile(
    r"(?<![a-z])(?<!val[_ ])(?<!best )(?<!test )loss['\"]?\s*[:=]?\s*([-+]?\d[\d.]*(?:e[-+]?\d+)?)\b", re.IGNORECASE
)
_NOT_FINITE: Final = re.compile(r"(?<![a-z])(?<!val_)(?<!val )loss['\"]?\s*[:=]?\s*[-+]?(?:nan|inf)\b", re.IGNORECASE)
_WHERE: Final = re.compile(r"Caught \w+ (in .+)\.$", re.MULTILINE)  # torch's message for an error of another process
_WORKER: Final = re.compile(r"RuntimeError: DataLoader worker \(pid \d+\) is (killed by signal: [^.\n]*)")
_OWN: Final = re.compile(r'  File "(<frozen runpy>|.*/kittrain/(node|system)/\w+\.py)"')  # below the script's frames
# What libraries print at exit, unrelated to the failure.
_NOISE: Final = re.compile(
    r"(\[rank\d+\]:)?\[[WI]\d{4} |.*resource_tracker: |.*\bWarning: |  warnings\.warn\(|"
    rf"note: (?:{'|'.join(map(re.escape, (*NOTES, NO_PROCESSES)))})|"
    # Below the error that Hydra has caught.
    r"Extension modules: |Set the environment variable HYDRA_FULL_ERROR=| *(?:full_key: |(?:object|reference)_type=)"
)


def clean(line: str) -> str:
    """A line without terminal control codes; of a line that was redrawn (a progress bar), its last state."""
    text = _ESCAPES.sub("", line).rstrip("\r\n")
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.rpartition("\r")[2].replace("\t", "    "))


def excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """The few lines that explain most: the last ones, or the beginning of a fatal error of the interpreter.

    Args:
        lines: the end of a rank's output, oldest first.
    """
    texts = [line for line in map(clean, lines) if line.strip()]
    fatal = next((at for at, text in enumerate(texts) if text.startswith(FATAL)), None)
    chosen = texts[-LINES:] if fatal is None else _fatal(texts, fatal)
    usage = next((text for text in texts[:-LINES] if _USAGE.match(text)), None)
    if usage and fatal is None:
        chosen[:1] = [usage]
    return tuple(text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…" for text in chosen)


def without_traceback(lines: Sequence[str]) -> Sequence[str]:
    """The output before the traceback that ends it, with all of its chain: what the rank, or its children, had said."""
    headers = [at for at, line in enumerate(lines) if clean(line).startswith(HEADER)]
    if not headers:
        return lines
    first = headers.pop()
    while headers and any(_CHAINED.match(line) for line in lines[headers[-1] : first]):
        first = headers.pop()
    return lines[:first]


def last_line(lines: Sequence[str]) -> str:
    """The line that most likely explains why a rank ended: the last one that is not a library's message at exit.

    If one of the few before it is an error by its own words, and it is not, that one: what cleans up prints, too.
    """
    texts = _said(lines)
    errors = [line for line in texts[-NEAR:] if _ERROR.match(line)]
    return errors[-1] if errors else texts[-1] if texts else ""


def _said(lines: Sequence[str]) -> list[str]:
    """Lines without what libraries print at exit."""
    return [line.strip() for line in lines if line.strip() and not _NOISE.match(line.strip())]


def last_error(lines: Sequence[str]) -> str:
    """What a rank complains of: the last line, if it tells of a failure; else, of a few, one that does."""
    texts = [line for line in map(str.strip, map(clean, lines[-NEAR:])) if line]
    found = (text[:WIDTH] for sign in (_COMPLAINT, _WAITS) for text in reversed(texts) if sign.search(text))
    return next(found, "")


def repeated_error(lines: Sequence[str]) -> str:
    """What a rank complains of last, if it has done so before, but for numbers: it tries something again and again."""
    said = last_error(lines)
    return said if [*map(_same, lines)].count(_same(said)) > 1 else ""


def thread_error(lines: Sequence[str]) -> str:
    """The error that has ended a thread of the script, which nobody prints again; empty if none did."""
    texts = [clean(line) for line in lines]
    for at in reversed(range(len(texts))):
        if _THREAD_ENDED.match(texts[at]):
            raised = (text for text in texts[at + 2 :] if _RAISED.match(text))  # below the traceback's header
            return f"{texts[at]} {next(raised, '')}".rstrip()[:WIDTH]
    return ""


def handled_error(lines: Sequence[str]) -> str:
    """The error of the last traceback in an output, with which the rank has not ended; empty without one."""
    texts = [clean(line) for line in lines]
    for at in reversed(range(len(texts))):
        before, header, _ = texts[at].partition(HEADER)  # torch puts a rank's number before each line
        if header:
            rest = (line.removeprefix(before) for line in texts[at + 1 :])
            return next((_whole(line, rest)[:WIDTH] for line in rest if _ENDS.match(line)), "")
    return ""


def _whole(line: str, rest: Iterator[str]) -> str:
    """An error's first line; if that has no words, with the indented ones below it."""
    more = takewhile(lambda text: text.startswith(" ") or not text, rest) if line.endswith((":", ": ")) else ()
    return " ".join([line.rstrip(), *" ".join(more).split()])


def child_error(error: str, lines: Sequence[str]) -> str:
    """The own error of a process or thread of the script, if the rank's is only that it does not come any more.

    Empty if it printed none.
    """
    if WAITED_FOR_A_THREAD.match(error):
        name, ended, raised = thread_error(lines).removeprefix(THREAD).partition(": ")
        return f"{raised} (in thread {name})" if ended and raised else ""
    return (handled_error(lines) or _headless(lines)) if _OF_A_CHILD.match(error) else ""


def _headless(lines: Sequence[str]) -> str:
    """The error of the last traceback of which only the end is left."""
    texts = [_OF_RANK.sub("", clean(line)) for line in lines]
    ends = (at for at in range(len(texts) - 1, 0, -1) if _ENDS.match(texts[at]) and texts[at - 1].startswith("    "))
    return next((_whole(texts[at], iter(texts[at + 1 :]))[:WIDTH] for at in ends), "")


def aborted(lines: Sequence[str]) -> str:
    """Why native code has aborted the rank, as C++ and the C library print it; empty if they have printed nothing."""
    found = (_ABORTED.match(clean(line)) for line in reversed(lines))
    return next((" ".join((one["what"] or one[0]).split())[:WIDTH] for one in found if one), "")


def other_group(lines: Sequence[str]) -> str:
    """Why the group that the rank last waited for is not that of all ranks; empty if it is."""
    texts = (clean(line).partition(OTHER_GROUP)[2] for line in reversed(lines))
    return next(filter(None, texts), "")[:WIDTH]


def lost_worker(lines: Sequence[str]) -> str:
    """That a pool of the rank waits for a worker that was killed; empty if none does."""
    found = (clean(line).partition(LOST_WORKER) for line in reversed(lines))
    return next((f"{LOST_WORKER}{how}" for _, told, how in found if told), "")


def last_words(lines: Sequence[str]) -> str:
    """What a rank that ended well complained of at its end: the error of a traceback, or a last line that is one."""
    said = _said(excerpt(lines))
    early = next((line for line in reversed(said[-NEAR:]) if _ENDED_EARLY.search(line)), "")
    last = next(iter(said[-1:]), "")
    return handled_error(lines) or (last if _BAD_END.search(last) else early)


def not_finite_loss(lines: Sequence[str]) -> str:
    """The last line that shows a loss, if the last few of them all show NaN or infinity; empty if not."""
    shown = [text for text in map(clean, lines) if _LOSS.search(text)]
    last = shown[-LOSSES:]
    return last[-1].strip()[:WIDTH] if len(last) == LOSSES and all(map(_NOT_FINITE.search, last)) else ""


def trains_nothing(lines: Sequence[str]) -> str:
    """What training lacked, as hooks have said it at the end, or that the loss has stayed the same; else empty."""
    texts = [*map(clean, lines)]
    noted = (text[text.find(note) :] for note in NOTES for text in texts if note in text)
    shown = [found[1] for text in texts if (found := _LOSS_VALUE.search(text))]
    same = len(shown) >= SAME and len({*shown}) == 1 and float(shown[0].rstrip(".")) != 0
    stays = f"the loss was {shown[0]} in the last {len(shown)} lines that show it" if same else ""
    first = next(noted, "")
    return first if first.startswith((CHANGED_NOTHING, NOTHING_LOADED)) else stays or first


def starts_nothing(lines: Sequence[str]) -> str:
    """That a rank has left its work to processes, and has started none, or to programs; empty if not."""
    texts = [*map(clean, lines)]
    found = (text[text.find(note) :] for note in (NO_PROCESSES, UNSEEN_PROGRAMS) for text in texts if note in text)
    return next(found, "")


def innermost_error(error: str, traceback: str) -> str:
    """The error of another process that an error contains: ``KeyError: 'x' (in DataLoader worker process 0)``.

    Data loader workers, spawned processes and replicas send their traceback as the text of a new error. That a data
    loader worker was killed is in the error's cause, which is part of the traceback.
    """
    if killed := _WORKER.search(traceback):
        return f"RuntimeError: DataLoader worker was {killed[1]}"
    _, found, inside = error.rpartition(HEADER)
    raised = (line for line in inside.splitlines() if _RAISED.match(line))
    inner = next(raised, "") if found else ""
    if not inner:
        return error
    where = _WHERE.search(error)
    return f"{inner} ({where[1]})" if where else inner


def _same(line: str) -> str:
    return _NUMBER.sub("", clean(line).strip()[:WIDTH])


def _fatal(texts: list[str], at: int) -> list[str]:
    """The lines just before, the error, and the stack of the thread that caused it."""
    before, error, stack = texts[max(at - 3, 0) : at], texts[at], texts[at + 1 :]
    own = next((number for number, text in enumerate(stack) if text.startswith(("Current thread", "Stack"))), 0)
    end = next((number for number, text in enumerate(stack) if number > own and _THREAD.match(text)), len(stack))
    frames = [text for text in stack[own:end] if not (_NOISE.match(text) or _OWN.match(text))]
    return [*before, error, *frames][:LINES]
