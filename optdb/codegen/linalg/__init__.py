"""Cholesky factorization and triangular solves of batches of matrices.

Both are recursive: off-diagonal parts are matrix products, and kernels compute small blocks. Tiny matrices have
separate kernels, with one matrix per vector lane. An upper factor is the transpose of the transposed matrix's lower
factor.
"""
