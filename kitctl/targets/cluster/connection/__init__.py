"""The connection to an API server: requests, errors and rights."""
