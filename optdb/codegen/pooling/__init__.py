"""Kernels over windows."""
