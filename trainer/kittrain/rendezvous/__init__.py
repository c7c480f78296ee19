"""How nodes find each other, and how a round ends: the hub and torch's own c10d behind one protocol, and the vigil.

Nothing here knows what the ranks do.
"""
