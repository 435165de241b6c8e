"""OpenCL C for scalar ops: types, functions, one expression per op, and whole graphs.

Data flows ``types, helpers -> step -> table, complex_table, special -> code``; what generates kernels asks :mod:`code`.
"""
