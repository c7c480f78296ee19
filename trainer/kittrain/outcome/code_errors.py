"""Which errors depend on nothing but the script, its arguments and the model: another try comes to the same. Pure.

Not one of them is of a user's own ``raise``, of data, of files or of a service's answer: a KeyError may be of such an
answer, and an empty list that of a volume that is mounted late. Nor is one that code has raised while it handled
another, which may pass.

Why: decision 33.
"""

from __future__ import annotations

import re
from typing import Final

# Of values that no file and no service gives: what these may give is left out, and None, which a failed look-up gives.
_WRONG_CALL: Final = re.compile(
    r"TypeError: (?!.*(?:NoneType\b|indices must be|JSON|'(?:str|bytes|dict|list)'))"
    r"|AttributeError: '(?!NoneType|str|bytes|dict|list|\w*(?:Response|Element|Tag|Message))\w+' object has no attr"
    r"|NotImplementedError\b"
)
# Of these, what no sample of a data set decides.
_WRONG_NAME: Final = re.compile(
    r"TypeError: \S*\(\) (?:missing \d+ required|takes (?:no|\d+)|got (?:an unexpected keyword|multiple values))"
    r"|AttributeError: '(?!NoneType|str|bytes|dict|list|\w*(?:Response|Element|Tag|Message|Image\w*))\w+' object has "
    r"no attr"
)
# Operators of torch say so, whatever code has called them.
_OPERATOR: Final = re.compile(
    r"(?:Runtime|Index|Value)Error: .*(?:"
    r"shapes? cannot be multiplied|must match the size of tensor|is invalid for input of size"
    r"|[Ss]izes of tensors must match|must have the same dtype|expected scalar type|expected m1 and m2"
    r"|Expected all tensors to be on the same device|does not require grad and does not have a grad_fn"
    r"|backward through the graph a second time|modified by an inplace operation"
    r"|grad can be implicitly created only for scalar outputs|a leaf Variable that requires grad"
    r"|Dimension out of range|Can't call numpy\(\) on Tensor that requires grad)"
)
# Its modules and optimizers check what they are given; its loaders, checkpoints and process groups depend on more.
_MODULES: Final = re.compile(r"/torch/(?:nn|optim|amp|autograd|functional\.py|_tensor\.py|func|linalg)\b")
_CHECKED: Final = re.compile(r"(?:Value|Type|Runtime|Index|Key|Assertion|NotImplemented)Error: ")
_ENVIRONMENT: Final = re.compile(r"(?:<frozen os>|/os\.py)$")  # a job's variables stay the same
_LOADER: Final = "/torch/utils/data/"
_FRAME: Final = re.compile(r'^ *File "([^"]+)", line \d+, in (\S+)', re.MULTILINE)
_CHAINED: Final = re.compile(r"^(?:During handling of|The above exception was)", re.MULTILINE)
_MAY_PASS: Final = re.compile(
    r"connect|time[d ]?-?out|network|address|\bports?\b|socket|\bpeer|service|server|download|https?:|unavailable|busy"
    r"|retry|\bfiles?\b|director(?:y|ies)|folder|\bpath\b|\bdisk|no space|memory|\block(?:ed)?\b|permission|CUDA|NCCL"
    r"|gloo|driver",
    re.IGNORECASE,
)


def is_of_code(error: str, traceback: str) -> bool:
    """Whether an error depends on the code and what it was started with alone.

    Args:
        error: ``TypeError: message``.
        traceback: of the error.
    """
    frames = _FRAME.findall(traceback)
    if not frames or _CHAINED.search(traceback) or _MAY_PASS.search(error):
        return False
    if _LOADER in traceback:
        return bool(_WRONG_NAME.match(error))
    file, function = frames[-1]
    if error.startswith("KeyError: "):
        return bool(_ENVIRONMENT.search(file)) and function == "__getitem__"
    checked = bool(_CHECKED.match(error) and _MODULES.search(file))
    return checked or bool(_WRONG_CALL.match(error) or _OPERATOR.match(error))
