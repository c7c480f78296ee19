"""What every room needs: errors with their fix, names, quantities, printable text, YAML, plugins."""
