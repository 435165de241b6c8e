"""Functions of lazy tensors: each is traced for the shapes of a call, fused into a few kernels, and run by plans."""
