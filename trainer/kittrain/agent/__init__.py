"""The agent: runs one node of a job. Never imports what a rank runs (``kittrain.rank``)."""
