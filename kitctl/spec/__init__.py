"""The job: its keys, their types, and the rules that hold between them. Pure."""
