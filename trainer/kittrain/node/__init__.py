"""Runs one node of a job: its agent, ranks, logs, report and drain."""
