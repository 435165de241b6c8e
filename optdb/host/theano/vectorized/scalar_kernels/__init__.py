"""A whole-array function (kernel) for each scalar op, with the same values as the op's C code.

A kernel takes the operands, converted to the dtypes that it requires, and the output array. If C and NumPy differ, the
results match C's, except for two errors in C: quotients of a negative and an unsigned integer, and maxima of integers
that no double represents.
"""
