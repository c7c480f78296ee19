"""Every name of torch that kittrain uses and torch does not document, behind a public one.

A new version of torch may lack any of them; ``tests/trainer/test_torch_private.py`` reports these, and keeps all out of
all other modules. What is documented does not belong here. Each module imports no more of torch than its users do.
"""
