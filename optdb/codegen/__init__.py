"""Kernels, their programs and launches, and array operations built from kernels, for any host framework."""
