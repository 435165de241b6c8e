"""Cholesky factorization and triangular solves on a device.

Both are recursive: a matrix is split in the middle, the off-diagonal parts are matrix products
(:mod:`optdb.codegen.gemm`), and small blocks are computed by a kernel. Everything works on batches of matrices.
Batches of tiny matrices have separate kernels, with a matrix in each vector lane.

- :mod:`~optdb.codegen.linalg.batches`: views of arrays as batches of matrices
- :mod:`~optdb.codegen.linalg.blocks`: the kernels and their launches
- :mod:`~optdb.codegen.linalg.operations`: the operations, and their recursion in place
- :mod:`~optdb.codegen.linalg.checks`: detection, on the device, of inputs that the host rejects

An upper factor is the lower factor of the transposed matrix, transposed; only strides change.
"""
