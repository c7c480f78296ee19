"""One thin file a command: it parses, calls one function below this layer, and prints."""
