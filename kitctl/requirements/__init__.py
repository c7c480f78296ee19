"""The requirements of a job's script, read where it is submitted and sent with it; pip itself runs in the nodes.

What does not belong here: choosing versions, and anything that an index has to be asked for.
"""
