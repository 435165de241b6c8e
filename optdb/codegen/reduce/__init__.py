"""Kernels that reduce."""
