"""Example workloads, each about a page long."""
