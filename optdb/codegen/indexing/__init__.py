"""Indexing: taking, setting and incrementing parts of arrays."""
