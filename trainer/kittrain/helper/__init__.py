"""Tools that kitctl runs beside a claim. Standard library only."""
