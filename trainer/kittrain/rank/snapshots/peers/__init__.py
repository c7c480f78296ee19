"""Copies of each node's shards on another node, for jobs whose nodes share no folder. Needs no torch.

A process next to each agent (``__main__``) keeps them; the ranks do nothing for them. How ranks read what the nodes
hold is in ``read``.
"""
