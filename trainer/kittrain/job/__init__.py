"""What a node and its ranks are told about their job, in variables and in the job's document."""
