"""Observes, copies, decomposes and prints Theano's compiled functions."""
