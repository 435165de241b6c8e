"""Cholesky factorization and triangular solves of batches of matrices.

Both algorithms are recursive: matrix products compute off-diagonal parts, and kernels compute small blocks. Tiny
matrices have separate kernels, with one matrix per vector lane. An upper factor is the transpose of the transposed
matrix's lower factor.
"""
