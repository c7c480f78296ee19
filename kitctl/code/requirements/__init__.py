"""The requirements of a job's script: read on submission, and sent with the job; pip runs in the nodes.

What does not belong here: choosing versions, and requests to an index.
"""
