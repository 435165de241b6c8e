"""Cholesky factorization and triangular solves on a device.

Both are recursive: a matrix is split in the middle, off-diagonal parts are computed by matrix products
(:mod:`optdb.codegen.gemm`), and small blocks by a kernel. All functions take batches of matrices. Batches of tiny
matrices have separate kernels, with one matrix per vector lane.

- :mod:`~optdb.codegen.linalg.batches`: views of arrays as batches of matrices
- :mod:`~optdb.codegen.linalg.blocks`: the kernels and their launches
- :mod:`~optdb.codegen.linalg.operations`: the operations, and their recursion in place
- :mod:`~optdb.codegen.linalg.checks`: detection, on the device, of inputs that the host rejects

An upper factor is computed as the transpose of the transposed matrix's lower factor, which only changes strides.
"""
