"""What is set in a rank of a plain script before it runs. Standard library only, until the script imports more."""
