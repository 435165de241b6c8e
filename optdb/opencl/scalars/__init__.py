"""OpenCL C for scalar ops: programs of them, one expression per op, and what writes the statements.

Data flows ``program, table -> code``; what generates kernels asks :mod:`code`.
"""
