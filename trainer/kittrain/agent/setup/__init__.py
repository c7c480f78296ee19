"""What a node needs before its first rank: code, packages, secret, memory."""
