"""How nodes find each other and how a round ends: the hub and torch's c10d behind one protocol, and hang detection.

Nothing here knows what the ranks compute.
"""
