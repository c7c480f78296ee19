"""What all ranks share: the process group, the order of the data, exact evaluation, random number generators."""
