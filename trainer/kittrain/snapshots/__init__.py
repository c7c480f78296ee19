"""The committed history of a run: what is saved and how, which samples counted, who may publish, and going on from it.

``python -m kittrain.snapshots`` is its command line, for whoever looks after a run from beside its data.
"""
