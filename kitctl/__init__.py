"""kitctl: from one job spec to a multi-node PyTorch run.

What lives here: the spec, what is rendered from it, the targets that run it, and what a person sees of it.
What never does: torch. The code that trains lives in ``kittrain`` (the folder trainer/), and the two never import each
other; what they agree on is written down twice (``kitctl.names``, ``kittrain.env``), and ``tests/contract`` holds both
equal.
"""

__version__ = "0.1.0"
