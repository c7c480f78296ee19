"""The files of a snapshot: shards, their checksums and their layout."""
