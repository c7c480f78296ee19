"""Errors of the code alone, and those that may pass: as Python and torch say them."""

from __future__ import annotations

import pytest

from kittrain.outcome.code_errors import is_of_code

SCRIPT = 'Traceback (most recent call last):\n  File "/job/train.py", line 7, in <module>\n    step()\n'
MODULE = SCRIPT + '  File "/opt/lib/site-packages/torch/nn/functional.py", line 2051, in batch_norm\n    raise error\n'
LOADER = (
    SCRIPT + '  File "/opt/lib/site-packages/torch/utils/data/dataloader.py", line 708, in __next__\n'
    '  File "/opt/lib/site-packages/torch/_utils.py", line 733, in reraise\n'
)
GROUP = SCRIPT + '  File "/opt/lib/site-packages/torch/distributed/distributed_c10d.py", line 2501, in all_gather\n'
VARIABLE = SCRIPT + '  File "<frozen os>", line 685, in __getitem__\n'


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        ("TypeError: step() takes 1 positional argument but 2 were given", SCRIPT),
        ("TypeError: unsupported operand type(s) for /: 'float' and 'tuple'", SCRIPT),
        ("AttributeError: 'Namespace' object has no attribute 'lr'", SCRIPT),
        ('NotImplementedError: Module [Net] is missing the required "forward" function', SCRIPT),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x5 and 4x4)", SCRIPT),
        ("RuntimeError: grad can be implicitly created only for scalar outputs", SCRIPT),
        ("ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 4])", MODULE),
        ("ValueError: optimizer got an empty parameter list", MODULE.replace("nn/functional", "optim/optimizer")),
        ("KeyError: 'DATA_ROOT'", VARIABLE),
        ("AttributeError: 'Digits' object has no attribute 'labls' (in DataLoader worker process 1)", LOADER),
        (
            "TypeError: augment() missing 1 required positional argument: 'size' (in DataLoader worker process 0)",
            LOADER,
        ),
    ],
)
def test_what_depends_on_the_code_alone(error: str, traceback: str) -> None:
    assert is_of_code(error, traceback)
    handled = f"{SCRIPT}ConnectionError: no\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert not is_of_code(error, handled + traceback), "what it hides may pass"
    assert not is_of_code(error, ""), "where it was raised is unknown"


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        ("ValueError: the data server is not ready", SCRIPT),
        ("ValueError: num_samples should be a positive integer value, but got num_samples=0", LOADER),
        ("TypeError: unsupported operand type(s) for +: 'int' and 'tuple' (in DataLoader worker process 0)", LOADER),
        ("AttributeError: 'JpegImageFile' object has no attribute 'crop_to' (in DataLoader worker process 0)", LOADER),
        ("AttributeError: 'NoneType' object has no attribute 'shape' (in DataLoader worker process 1)", LOADER),
        ("KeyError: 'data'", SCRIPT),
        ("IndexError: list index out of range", SCRIPT),
        ("ZeroDivisionError: division by zero", SCRIPT),
        ("AssertionError: no shards", SCRIPT),
        ("TypeError: 'NoneType' object is not subscriptable", SCRIPT),
        ("TypeError: string indices must be integers, not 'str'", SCRIPT),
        ("AttributeError: 'NoneType' object has no attribute 'text'", SCRIPT),
        ("AttributeError: 'Response' object has no attribute 'rows'", SCRIPT),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", SCRIPT),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.bin'", SCRIPT),
        ("RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId", GROUP),
        ("ValueError: the lock file /data/.lock is held", MODULE),
        ("RuntimeError: CUDA error: device-side assert triggered", MODULE),
        ("requests.exceptions.ConnectionError: no route to host", SCRIPT),
        ("OSError: [Errno 98] Address already in use", SCRIPT),
        ("TimeoutError: 30 s", SCRIPT),
    ],
)
def test_what_may_pass_by_itself(error: str, traceback: str) -> None:
    assert not is_of_code(error, traceback)
