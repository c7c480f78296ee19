"""The processes of a node: ranks forked warm, their logs, their watch."""
