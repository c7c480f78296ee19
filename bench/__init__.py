"""Benchmarks: each module measures one thing and writes ``bench/results/<name>.json``; ``tables`` shows them.

Benchmarks assert nothing: they report what they measured, how often, and on what machine.
"""
