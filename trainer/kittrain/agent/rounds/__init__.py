"""The rounds of training on a node: torch's elastic agent, restarts and drains."""
