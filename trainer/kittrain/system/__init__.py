"""Wrappers around the operating system: files, sockets, processes, shared memory. Standard library only.

Nothing here depends on the rest of kittrain.
"""
