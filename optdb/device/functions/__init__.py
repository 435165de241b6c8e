"""Functions of lazy tensors; each function is traced for a call's shapes, fused into kernels, and run by plans."""
