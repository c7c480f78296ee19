"""How nodes find each other and how a round ends: the hub, its nodes, and hang detection.

Nothing here knows what the ranks compute.
"""
