"""How a snapshot is read: from disk, or from copies in memory."""
