"""How things end: whose fault a failure is, why a node ended, and that a run has finished. Standard library only."""
