"""Derives one worker's graph from the user's graph, for workers that each have a part of the batch."""
