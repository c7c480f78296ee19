"""Benchmarks: each module measures one thing and writes ``bench/results/<name>.json``; ``tables`` shows them.

What never lives here: assertions. A benchmark reports what it saw, with how often and on what machine.
"""
