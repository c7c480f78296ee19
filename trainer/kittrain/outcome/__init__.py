"""Why ranks fail, how a node ends, and whether a run has finished. Standard library only."""
