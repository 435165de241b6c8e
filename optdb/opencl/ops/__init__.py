"""The ops of the device that have kernels of their own, one module for each family."""
