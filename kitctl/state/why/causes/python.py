"""Causes in Python's own errors, which say little: what is mostly behind them in training scripts. Pure.

They come last: a library's words, where it has some, say more. An error of this kind that the script raises itself is
the script's own.
"""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

# The innermost frame: of a library, or of a line that raises nothing itself.
_OF_PYTHON: Final = (
    r'\n *File "(?:[^"]*(?:-packages|/lib/python[\d.]+|/torch)/[^"]*'
    r'|<[^"]*)", line \d+[^\n]*(?:\n(?! *File ")[^\n]*)*\Z'
    r'|\n *File "[^"]*", line \d+[^\n]*\n(?! *raise\b)[^\n]*(?:\n(?! *File ")[^\n]*)*\Z'
)


def _python(code: str, pattern: str, fix: str, seen: str) -> Rule:
    return quoted(code, pattern, fix, seen, called=_OF_PYTHON)


PYTHON: Final = Family(
    "Errors of Python",
    "Failed",
    (
        _python(
            "division-by-zero",
            r"^ZeroDivisionError: ",
            "a count is 0 on this rank, mostly len() of what is empty: look at its path, its filter, and drop_last "
            "with fewer samples than a batch on each rank",
            "ZeroDivisionError: division by zero",
        ),
        _python(
            "unexpected-none-value",
            r"'NoneType' object|non-iterable NoneType|argument of type 'NoneType'|\w+Error: [^\n]*'NoneType'",
            "something is None there: a function without a return on one way, a value that only rank 0 makes "
            "(broadcast it), .grad of a parameter that the loss does not use, or a search that found nothing "
            "(re.match(), .get(), cv2.imread())",
            "AttributeError: 'NoneType' object has no attribute 'backward'",
        ),
        _python(
            "model-wrapper-lacks-attribute",
            r"^AttributeError: '(?:DistributedDataParallel|FullyShardedDataParallel|DataParallel)' object has no "
            r"attribute '(\w+)'",
            "it is the wrapped model's: model.module.{0}",
            "AttributeError: 'DistributedDataParallel' object has no attribute 'config'",
        ),
        _python(
            "setting-not-defined",
            r"^AttributeError: '(?:Namespace|\w*Args|\w*Arguments|\w*Config)' object has no attribute '(\w+)'",
            "no argument or setting is named {0}: add it (parser.add_argument('--{0}', ...)), or mend the name; of a "
            "library's, its installed version may have no such one",
            "AttributeError: 'Namespace' object has no attribute 'lr'",
        ),
        _python(
            "dictionary-used-as-object",
            r"^AttributeError: 'dict' object has no attribute '(\w+)'",
            "of a dict it is x['{0}']; a model that returns a tuple or an object needs return_dict=True",
            "AttributeError: 'dict' object has no attribute 'loss'",
        ),
        _python(
            "sequence-used-as-tensor",
            r"^AttributeError: '(list|tuple)' object has no attribute '(?:to|cuda|size|shape|dim|device|float|view)'",
            "it is a {0} of tensors: unpack it (x, y = batch), take each one ([t.to(device) for t in batch]), or "
            "torch.stack() it",
            "AttributeError: 'list' object has no attribute 'to'",
        ),
        _python(
            "mutable-dataclass-default",
            r"^ValueError: mutable default <class '(?:[\w.]*\.)?(\w+)'> for field (\w+) is not allowed",
            "{1}: {0} = field(default_factory={0}), of dataclasses: one default would be shared by all objects",
            "ValueError: mutable default <class 'config.Model'> for field model is not allowed: use default_factory",
        ),
        _python(
            "iterator-next-method-missing",
            r"^AttributeError: '\w+' object has no attribute 'next'",
            "Python 3 has no .next(): next(iterator)",
            "AttributeError: '_MultiProcessingDataLoaderIter' object has no attribute 'next'",
        ),
        _python(
            "circular-or-shadowed-import",
            r"^AttributeError: partially initialized module '([^']+)'",
            "{0} is imported while it is still being imported: a file of the script's folder is named {0}, which it "
            "hides (rename that), or modules import each other",
            "AttributeError: partially initialized module 'torch' has no attribute 'Tensor' (most likely due to ...)",
        ),
        _python(
            "sampler-lacks-set-epoch",
            r"^AttributeError: '(\w*Sampler)' object has no attribute 'set_epoch'",
            "{0} has no set_epoch, and gives all ranks the same data: DistributedSampler(data) as the loader's sampler "
            "gives each rank its share, and its set_epoch(epoch) another order",
            "AttributeError: 'RandomSampler' object has no attribute 'set_epoch'",
        ),
        _python(
            "attribute-not-defined",
            r"^AttributeError: '([^']+)' object has no attribute '([^']+)'",
            "{0} has no {1}: a mistyped name, one that another version of its library has, or one that __init__ sets "
            "later, or under a condition",
            "AttributeError: 'Linear' object has no attribute 'weights'",
        ),
        _python(
            "uid-without-user-name",
            r"getpwuid\(\): uid not found|No username set in the environment",
            "the pod's user has no name: --env USER=trainer --env HOME=/tmp (torch.compile: --env "
            "TORCHINDUCTOR_CACHE_DIR=/tmp/inductor)",
            "KeyError: 'getpwuid(): uid not found: 1000'",
        ),
        Rule(
            "terminal-not-available",
            r"^OSError: \[Errno \d+\] (?:No such device or address|Inappropriate ioctl for device)",
            "the script asks for its terminal, and ranks have none",
            "getpass.getuser() instead of os.getlogin(), shutil.get_terminal_size() instead of os.get_terminal_size()",
            called=r"\bos\.(?:getlogin|get_terminal_size|ttyname|ctermid)\(",
        ),
        _python(
            "key-not-found",
            r"^KeyError: ",
            "print the keys that there are: a batch's come from the data set's columns and its collate function, a "
            "checkpoint's from what saved it (under DDP they begin with module.), a registry's from the library's "
            "version",
            "KeyError: 'input_ids'",
        ),
        _python(
            "sequence-too-short",
            r"^IndexError: (?:list|tuple|string|pop from empty) ?(?:index out of range|list|assignment index)?",
            "there are fewer than it takes: an empty list of files, a missing argument, or fewer parts than ranks",
            "IndexError: list index out of range",
        ),
        _python(
            "index-out-of-bounds",
            r"^IndexError: index -?\d+ is out of bounds",
            "indices begin at 0 and end before the size: compare len() of the data set with what it holds, and ids or "
            "labels with the size of the table",
            "IndexError: index 12 is out of bounds for dimension 0 with size 12",
        ),
        _python(
            "too-few-dimensions",
            r"^IndexError: too many indices|^IndexError: Dimension (?:out of range|specified as)",
            "it has fewer dimensions than that: a sample without its batch dimension (unsqueeze(0)), or squeeze() of a "
            "last batch of one sample (name the dimension: squeeze(1))",
            "IndexError: too many indices for tensor of dimension 1",
        ),
        _python(
            "local-variable-not-set",
            r"^UnboundLocalError: [^\n]*variable '([^']+)'",
            "{0} was not set on the way there: by a loop of no turn (an empty loader on this rank), or a branch that "
            "not all ranks take: set it before",
            "UnboundLocalError: cannot access local variable 'loss' where it is not associated with a value",
        ),
        _python(
            "name-not-defined",
            r"^NameError: (?:free variable|name) '([^']+)'",
            "import or define {0} before that line, on each way there; what stands under if __name__ == '__main__': is "
            "not there in processes that are spawned",
            "NameError: name 'lr' is not defined",
        ),
        _python(
            "recursion-limit-exceeded",
            r"^RecursionError: ",
            "look which lines the traceback repeats: a function without an end, a __getattr__ that asks for what is "
            "not set yet (in a copied or unpickled object), or a data set that tries its next sample for ever",
            "RecursionError: maximum recursion depth exceeded",
        ),
        _python(
            "iterator-exhausted",
            r"^StopIteration\b|^RuntimeError: generator raised StopIteration",
            "next() of an iterator that has ended, maybe sooner than on other ranks: make a new one (iter(loader)), or "
            "next(iterator, None)",
            "StopIteration: ",
        ),
        _python(
            "unpacked-value-count-mismatch",
            r"^ValueError: (?:not enough|too many) values to unpack",
            "print what is unpacked: a batch or a model's output with other parts, or a dict, which gives its keys",
            "ValueError: not enough values to unpack (expected 3, got 2)",
        ),
        _python(
            "text-not-numeric",
            r"^ValueError: (?:could not convert string to float|invalid literal for int\(\))",
            "that text is no number: an empty field, a header, or a variable or argument that was not given",
            "ValueError: could not convert string to float: ''",
        ),
        _python(
            "operand-type-unsupported",
            r"^TypeError: (?:unsupported operand type|can only concatenate|must be real number, not str"
            r"|bad operand type)",
            "one of the two has another type: a number that was read as text (argparse's type=int, float(...)), or "
            "what a function returns",
            "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        ),
        _python(
            "argument-count-mismatch",
            r"^TypeError: [^\n]*(?:missing \d+ required (?:positional|keyword-only) argument"
            r"|takes (?:from )?\d+(?: to \d+)? positional arguments? but \d+)",
            "the call and the function's arguments differ: of a method, self is missing in its definition; of "
            "forward(), "
            "the batch is one tuple or dict (model(*batch), model(**batch)); of a library, its version has others",
            "TypeError: Net.forward() missing 1 required positional argument: 'mask'",
        ),
        _python(
            "value-not-json-serializable",
            r"is not JSON serializable",
            "make plain numbers of it before: .item() of a tensor or of numpy's number, .tolist() of an array",
            "TypeError: Object of type Tensor is not JSON serializable",
        ),
        _python(
            "sequence-used-as-mapping",
            r"^TypeError: (?:list|tuple|string) indices must be integers",
            "it is a list, or text, and no mapping: a parsed file has a list at its top, or a batch is a tuple; print "
            "it",
            "TypeError: list indices must be integers or slices, not str",
        ),
        _python(
            "object-not-callable",
            r"^TypeError: '([^']+)' object is not callable",
            "a variable has the name of the function, or a property is called: print it, and rename the variable",
            "TypeError: 'Tensor' object is not callable",
        ),
        _python(
            "unexpected-object-type",
            r"^TypeError: '?[^\n']*'? ?object is not (?:iterable|subscriptable|an iterator)|^TypeError: object of type "
            r"'[^']+' has no len\(\)|^TypeError: [^\n]*unhashable type",
            "it is another thing than the line expects: print its type; a loader is no iterator (iter(loader)), and a "
            "generator or stream has no len() and no [i]",
            "TypeError: 'int' object is not iterable",
        ),
        _python(
            "relative-import-without-package",
            r"^ImportError: attempted relative import",
            "start it as a module from the folder above: -m PACKAGE.MODULE; or import without the dot",
            "ImportError: attempted relative import with no known parent package",
        ),
        _python(
            "file-name-too-long",
            r"\[Errno 36\] File name too long",
            "a name is made of a list, a configuration or a whole text: shorten it",
            "OSError: [Errno 36] File name too long: 'xxxx'",
        ),
        _python(
            "folder-not-empty",
            r"\[Errno 39\] Directory not empty",
            "another rank writes into that folder, or removes it, too: let rank 0 alone do that, and the others wait: "
            "dist.barrier()",
            "OSError: [Errno 39] Directory not empty: 'ckpt'",
        ),
        _python(
            "folder-used-as-file",
            r"^IsADirectoryError: .*?: '([^']*)'",
            "{0} is a folder: name the file in it",
            "IsADirectoryError: [Errno 21] Is a directory: '/data'",
        ),
        _python(
            "file-used-as-folder",
            r"^NotADirectoryError: .*?: '([^']*)'",
            "a part of {0} is a file, or is not there: check what it is made of, and --workdir, --send and --volume, "
            "by which files come to the ranks",
            "NotADirectoryError: [Errno 20] Not a directory: '/data/x.tar/y'",
        ),
        _python(
            "text-encoding-mismatch",
            r"^UnicodeDecodeError: '([\w-]+)' codec can't decode byte (0x\w\w)",
            "the file is no {0}: bytes such as 0x8b or 0x80 are of one that is compressed or binary (open(..., 'rb'), "
            "gzip.open); else name its encoding: open(..., encoding='latin-1')",
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x8b in position 1: invalid start byte",
        ),
        _python(
            "method-not-implemented",
            r"NotImplementedError: Module \[\w+\] is missing the required \"forward\"|^NotImplementedError: ?(?:\n|$)",
            "define that method: its name (forward, __getitem__, __len__) and its indentation within the class",
            'NotImplementedError: Module [Net] is missing the required "forward" function',
        ),
        _python(
            "collection-changed-during-iteration",
            r"^RuntimeError: \w+ changed size during iteration",
            "go over a copy: list(x.items()); or another thread changes it meanwhile",
            "RuntimeError: dictionary changed size during iteration",
        ),
        quoted(
            "signal-handler-outside-main-thread",  # no other program says so
            r"^ValueError: signal only works in main thread of the main interpreter\b",
            "set signal handlers in the main thread, before other threads and libraries start",
            "ValueError: signal only works in main thread of the main interpreter",
        ),
        _python(
            "event-loop-misused",
            r"event loop is (?:already running|closed)|no current event loop"
            r"|cannot be called from a running event loop",
            "one event loop a thread: await there instead of asyncio.run(), or asyncio.new_event_loop() in a new "
            "thread",
            "RuntimeError: asyncio.run() cannot be called from a running event loop",
        ),
        _python(
            "file-already-closed",
            r"^ValueError: I/O operation on closed file",
            "the file is used after its with block, or after close(): keep it open, or open it anew",
            "ValueError: I/O operation on closed file.",
        ),
        _python(
            "daemonic-process-starts-children",
            r"daemonic processes are not allowed to have children",
            "a worker of a pool or a loader starts processes: num_workers=0 there, or concurrent.futures."
            "ProcessPoolExecutor for the outer ones",
            "AssertionError: daemonic processes are not allowed to have children",
        ),
        _python(
            "queue-empty-or-full",
            r"^(?:_?queue\.)?(?:Empty|Full): ?(?:\n|$)",
            "nothing has come in time from what fills the queue, or nobody empties it: see whether that process or "
            "thread has ended, in the log before",
            "Empty: ",
        ),
        _python(
            "operation-timed-out",
            r"^(?:multiprocessing\.context\.)?TimeoutError: ?(?:\[Errno 110\]|\n|$)",
            "what it waits for does not answer: a host behind a firewall or a wrong address, or a process of the "
            "script that has ended",
            "TimeoutError: [Errno 110] Connection timed out",
        ),
        _python(
            "stream-ended-unexpectedly",
            r"^EOFError: ?(?:\n|$)",
            "a process of the script has ended, with which it was connected: its own error is in the log before; or "
            "the file that is read ends there",
            "EOFError: ",
        ),
        _python(
            "terminal-or-display-missing",
            r"Inappropriate ioctl for device|no display name and no \$DISPLAY|could not connect to display",
            "there is no terminal and no screen: matplotlib.use('Agg'), opencv-python-headless, no prompts",
            "TclError: no display name and no $DISPLAY environment variable",
        ),
    ),
    of_code=True,
)
