"""Factors of positive definite matrices, and solutions of triangular systems, on a device.

Both are computed by recursion: a matrix is split in the middle, the parts off the diagonal are products of matrices
(:mod:`optdb.codegen.gemm`), and blocks that are small enough go to a kernel. All of it works on batches of matrices.
Many matrices of a few rows have kernels of their own, with a matrix in each lane of a vector.

- :mod:`~optdb.codegen.linalg.batches`: looks at arrays as batches of matrices
- :mod:`~optdb.codegen.linalg.blocks`: the kernels, and how they are launched
- :mod:`~optdb.codegen.linalg.recursion`: factors and solutions in place
- :mod:`~optdb.codegen.linalg.operations`: the operations
- :mod:`~optdb.codegen.linalg.checks`: what the host refuses, found out on the device

An upper factor is the lower factor of the transposed matrix, transposed; only strides change.
"""
