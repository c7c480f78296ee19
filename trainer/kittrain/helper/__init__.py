"""Tools that kitctl runs next to a claim. Standard library only."""
