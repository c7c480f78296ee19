"""Callbacks for the training loops of other frameworks: progress, drain and resume where the loop is not ours.

Each module imports its framework, and only when a script imports the module. A script's own loop belongs to
``kittrain.Run``.
"""
