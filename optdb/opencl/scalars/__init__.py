"""OpenCL C for scalar ops: programs of them, one expression per op, and the writer of statements.

Data flows ``program, table -> code``; generators of kernels call :mod:`code`.
"""
