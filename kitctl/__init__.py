"""kitctl: from one job spec to a multi-node PyTorch run.

What lives here: the spec, the manifests rendered from it, the targets that run it, and the command line.
What never does: torch. The code that trains lives in ``kittrain`` (the folder trainer/), and the two never import each
other; their contract is defined twice (``kitctl.names``, ``kittrain.env``), and ``tests/contract`` checks that both are
equal.
"""

__version__ = "0.1.0"
