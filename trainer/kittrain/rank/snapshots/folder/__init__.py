"""The folder of snapshots: which there are, which may be resumed, which go."""
