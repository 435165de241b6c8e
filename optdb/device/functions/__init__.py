"""Functions of lazy tensors: traced for the shapes of a call, fused into few kernels, and run by plans."""
