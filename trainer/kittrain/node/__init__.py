"""One node of a job, from its agent's start to its end: surroundings, ranks, their logs, the report, the drain."""
