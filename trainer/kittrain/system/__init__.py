"""What the system gives, made reliable: files, sockets, child processes, a shared page. Standard library only.

Nothing here knows what it is used for.
"""
