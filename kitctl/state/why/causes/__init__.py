"""Tables of causes, one for each family. Pure."""
