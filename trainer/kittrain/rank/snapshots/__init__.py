"""Snapshots of a run: saving and restoring the training state, the ledger of samples, fencing of stale writers.

``python -m kittrain.rank.snapshots`` is the command line behind ``kitctl snapshots`` and ``kitctl audit``.
"""
