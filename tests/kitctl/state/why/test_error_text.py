"""The most telling words of failures whose errors tell little."""

from __future__ import annotations

from functools import partial

from kitctl.state.why.explain import explain
from tests.kitctl.state.why.test_explain import failed

CHAIN = """Traceback (most recent call last):
  File "/job/train.py", line 11, in load
    return open(path).read()
           ^^^^^^^^^^
{0}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/train.py", line 14, in <module>
    load("/data/train.bin")
TrainingError: no data
"""
BARE = """Traceback (most recent call last):
  File "/job/train.py", line 20, in <module>
    assert ids.shape == mask.shape
           ^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/site-packages/torch/x.py", line 3, in check
    assert ok
{0}"""


def told(error: str, *lines: str, traceback: str = "") -> tuple[str, str]:
    found = explain(failed(error, *lines, traceback=traceback), 0.0)
    return found.cause, found.fix


def test_what_the_trainer_makes_of_an_error_has_its_own_fix() -> None:
    error = "SnapshotError: no snapshots can be written to /kit/snapshots: [Errno 30] Read-only file system: '.fence'"
    chain = CHAIN.format("OSError: [Errno 30] Read-only file system: '.fence'")
    ours = chain.replace('/job/train.py", line 14', '/opt/kitctl/kittrain/rank/snapshots/folder/archive.py", line 206')
    cause, fix = told(error, traceback=ours.replace("TrainingError: no data", error))
    assert cause == f"rank 1: {error}"
    assert fix.startswith("make that folder writable")


def test_the_error_that_another_one_was_raised_from_is_told_first_with_its_fix() -> None:
    missing = CHAIN.format("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'")
    cause, fix = told("TrainingError: no data", traceback=missing)
    assert cause == "rank 1: the node has no /data/train.bin (TrainingError: no data)"
    assert fix.startswith("create it")
    cause, fix = told("TrainingError: no data", traceback=CHAIN.format("my.errors.ShardError: 7 is bad\nsee there"))
    assert (cause, fix) == (
        "rank 1: ShardError: 7 is bad (TrainingError: no data)",
        "see train.py:14, where it was raised",
    )


def test_an_error_that_was_only_being_handled_or_is_of_another_process_is_not_told() -> None:
    handled = CHAIN.format("KeyError: 'lr'").replace(
        "The above exception was the direct cause of", "During handling of"
    )
    assert told("TrainingError: no data", traceback=handled)[0] == "rank 1: TrainingError: no data"
    assert (
        told("KeyError: 'x' (in worker 0)", traceback=CHAIN.format("A: b"))[0] == "rank 1: KeyError: 'x' (in worker 0)"
    )


def test_an_error_without_words_is_told_with_the_line_of_the_users_code() -> None:
    cause, _ = told("AssertionError:", traceback=BARE.format("AssertionError"))
    assert cause == "rank 1: AssertionError: at train.py:20: assert ids.shape == mask.shape"
    assert told("AssertionError:")[0] == "rank 1: AssertionError:"
    inner = '  File "/venv/lib/python3.12/site-packages/timm/readers.py", line 42, in create\n    {}\nAssertionError'
    calls = BARE.replace(f"    assert ids.shape == mask.shape\n{'^' * 23:>34}\n", "    create(root)\n")
    called = calls.format(inner.format("assert os.path.exists(root)"))
    cause, fix = told("AssertionError:", traceback=called)
    assert cause == "rank 1: AssertionError: at readers.py:42, called at train.py:20: assert os.path.exists(root)"
    assert "see train.py:20" in fix
    other = calls.format(inner.format("create_reader(root)"))
    assert told("AssertionError:", traceback=other)[0].endswith(" at train.py:20: create(root)")


def test_the_line_that_executes_a_text_is_told_and_not_the_line_in_that() -> None:
    trace = 'Traceback:\n  File "/j/train.py", line 7, in <module>\n    exec(text)\n  File "<string>", line 23, in f\n'
    found = explain(failed("AssertionError:", traceback=trace), 0.0)
    assert found.cause == "rank 1: AssertionError: at train.py:7: exec(text)"


def test_of_a_process_of_the_script_its_own_error_is_told() -> None:
    ended = "CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 2."
    said = "a.py: error: argument --split: invalid choice: 'train'"
    cause, _ = told(ended, "usage: a.py", said, f"subprocess.{ended}")
    assert cause == f"rank 1: {said} ({ended})"
    assert told(ended, "loading")[0] == f"rank 1: {ended}"
    assert told("ValueError: x", said)[0] == "rank 1: ValueError: x", "it is no error of a process"


def test_an_exit_code_has_the_place_of_the_traceback_that_was_logged() -> None:
    logged = (
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 14, in main',
        "    int(x)",
        "ValueError: x",
    )
    assert told("exit code 1: ValueError: x", *logged)[1] == "see train.py:14, where it was raised"


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/job/train.py", line 13, in main
  |     async with asyncio.TaskGroup() as g:
  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: outer (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ExceptionGroup: inner (1 sub-exception)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "/job/train.py", line 11, in fetch
      |     return {"id": i}["url"]
      |            ~~~~~~~~~^^^^^^^
      | {0}
      +------------------------------------
    +---------------- 2 ----------------
    | ValueError: 7
    +------------------------------------
"""


def test_of_an_exception_group_its_first_error_is_told_with_its_place() -> None:
    outer = "ExceptionGroup: outer (2 sub-exceptions)"
    told_of = partial(told, outer)
    assert told_of(traceback=GROUP.replace("{0}", "KeyError: 'url'"))[0] == "rank 1: KeyError: 'url'"
    assert told_of(traceback=GROUP.replace("{0}", "my.ShardError: 7"))[1] == "see train.py:11, where it was raised"
    bare = told_of(traceback=GROUP.replace("{0}", "AssertionError"))[0]
    assert bare == 'rank 1: AssertionError: at train.py:11: return {"id": i}["url"]'
    assert told_of(traceback="")[0] == f"rank 1: {outer}"


def test_an_error_that_calls_something_unsupported_is_none_of_the_compilers() -> None:
    compilers = "Unsupported: Attempted to call function marked as skipped"
    assert "torch.compiler.disable" in told(compilers)[1]
    assert "torch.compiler.disable" not in told("ValueError: Unsupported: codec av2")[1]


def test_an_error_of_what_was_read_that_names_no_file_has_the_line_that_reads_it() -> None:
    error = "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    header = "Traceback (most recent call last):\n"
    read = f'{header}  File "/job/train.py", line 3, in <module>\n    c = json.load(open(name))\n'
    library = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise error\n'
    cause, fix = told(error, traceback=read + library + error)
    assert cause == f"rank 1: {error} at train.py:3: c = json.load(open(name))"
    assert "head -c 100" in fix
    assert told(error) == (f"rank 1: {error}", fix)
    named = "ValueError: cfg.json is not valid: Expecting value"
    assert told(named, traceback=read + named)[0] == f"rank 1: {named}"


def test_a_fix_has_the_line_of_the_script_and_what_names_in_it_had() -> None:
    trace = BARE.partition('  File "/usr')[0] + "{0}"
    cause, fix = told(
        "ZeroDivisionError: division by zero", traceback=trace.format("ZeroDivisionError\nvalues: n = 0\n")
    )
    assert cause == "rank 1: ZeroDivisionError: division by zero"
    assert fix.startswith("a count is 0 on this rank")
    assert fix.endswith("; see train.py:20, where n = 0")
    assert told("ValueError: no", traceback=trace.format("ValueError: no"))[1] == "see train.py:20, where it was raised"
    assert (
        told("ValueError: no", traceback=trace.format("ValueError: no\nvalues: n = 0"))[1]
        == "see train.py:20, where n = 0"
    )


def test_of_an_error_that_a_library_raises_the_call_is_told() -> None:
    head, library = BARE.split('  File "/usr')
    error = "ValueError: the split group cannot be empty"
    trace = f'{head}  File "/usr{library}'.replace("in check", "in split_group").format(error)
    assert told(error, traceback=trace)[1] == "see train.py:20, and what it gives to torch's split_group()"
    assert told(error, traceback=trace.replace("split_group\n", "_check\n"))[1].endswith("and what it gives to torch")
    wrapped = trace.replace("ValueError", '  File "/job/train.py", line 30, in own\n    raise error\nValueError')
    assert told(error, traceback=wrapped)[1] == "see train.py:30, where it was raised", "the library calls the script"


def test_what_python_means_comes_first() -> None:
    error = "AttributeError: 'Linear' object has no attribute 'weights'"
    trace = BARE.partition('  File "/usr')[0] + f"{error}. Did you mean: 'weight'?\n"
    cause, fix = told(error, traceback=trace)
    assert cause == f"rank 1: {error}"
    assert fix.startswith("write weight; else Linear has no weights: ")


def test_an_error_that_the_script_raises_itself_is_its_own_whatever_its_type() -> None:
    trace = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\n    {0}\nKeyError: 7\n'
    assert told("KeyError: 7", traceback=trace.format("raise KeyError(7)"))[1] == "see train.py:9, where it was raised"
    assert told("KeyError: 7", traceback=trace.format("rows[7]"))[1].startswith("print the keys that there are")
    library = trace.format("model.x").replace(
        "KeyError: 7", '  File "/a/site-packages/torch/x.py", line 3, in f\n    raise'
    )
    assert told("KeyError: 7", traceback=library)[1].startswith("print the keys that there are")
