"""Kernels that sort rows."""
