"""Kernels that compute elements, each of those at the same place."""
