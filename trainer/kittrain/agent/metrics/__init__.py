"""Numbers of a node for Prometheus, from what its history is told; imported only where a job asks for them.

Nothing here measures: what is to be counted, ``kittrain.agent.report.history`` knows first.
"""
