"""Helpers of the Makefile and the benchmarks; nothing here is installed."""
