"""The device ops that have their own kernels, with one module for each family of ops."""
