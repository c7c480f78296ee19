"""What makes a run end well with another result than was meant: a rank says it at its end."""
