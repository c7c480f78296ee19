"""What kitctl runs next to a running agent, to look at its ranks; nothing here is needed to run a node."""
