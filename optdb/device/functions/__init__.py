"""Functions of lazy tensors, which are traced for the shapes of a call, fused into a few kernels, and run by plans."""
