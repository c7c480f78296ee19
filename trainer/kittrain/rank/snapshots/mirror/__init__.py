"""The copy of a run's snapshots in an object store, kept by a process of its own next to the agent; no rank imports it.

What a snapshot is, and what the folder may hold, is not decided here but in ``folder``.
"""
