"""What runs in a rank. Never imports the agent (``kittrain.agent``)."""
