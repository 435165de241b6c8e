"""A whole-array function (kernel) for each scalar op, which returns the same values as the C code of the op.

A kernel takes the operands and, as its last argument, the output array. The operands are first converted to
the dtypes that the kernel requires, so that NumPy selects its loop by the dtypes alone, not by values. The operands are
converted to the dtype of the result, unless the kernel's entry specifies another dtype: C would add an int64 to a
float32 as floats, and lose digits.

If C and NumPy differ, the results are those of C: operands of different dtypes are combined in the dtype that C
chooses, dividing integers by zero raises `ZeroDivisionError`, ``floor(x / y)`` is the integer division of floats, and
sigmoid and softplus saturate as in Theano's C code. NumPy's results are kept if those of C are wrong: for the quotient
of a negative and an unsigned integer, and for the maximum of two integers that no double represents.
"""
