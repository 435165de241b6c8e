"""The device ops that have their own kernels, one module for each family."""
