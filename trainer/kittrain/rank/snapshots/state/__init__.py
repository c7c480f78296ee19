"""The state in a snapshot: from and to models, optimizers and random generators."""
