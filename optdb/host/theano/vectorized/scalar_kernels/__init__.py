"""A whole-array function (kernel) for each scalar op, which returns the same values as the C code of the op.

A kernel takes the operands, converted to the dtypes that it requires, and the output array. Where C and NumPy differ,
the results are C's, unless C's are wrong: quotients of a negative and an unsigned integer, and maxima of integers that
no double represents.
"""
