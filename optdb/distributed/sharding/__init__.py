"""Derives the part of a graph that one worker computes if each worker has a part of the batch."""
