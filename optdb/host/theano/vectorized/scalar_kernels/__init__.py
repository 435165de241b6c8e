"""A function of arrays for each scalar op, with the values of its C code.

A kernel takes the operands and, as its last argument, the array for the result. Before, the operands are converted to
the dtypes that the kernel asks for, so that NumPy chooses its loop by the dtypes alone, not by values. The dtype is the
result's, unless the entry says otherwise: C would add an int64 to a float32 as floats, and lose digits.

Where C and NumPy differ, C wins: operands of several dtypes are combined in the dtype that C chooses, integers raise
`ZeroDivisionError` where they are divided by zero, ``floor(x / y)`` is the integer division of floats, and sigmoid and
softplus saturate where Theano's C code says so. NumPy's results stay where those of C are wrong: the quotient of a
negative integer and an unsigned one, and the larger of two integers that no double holds.
"""

from __future__ import annotations

from optdb.host.theano.vectorized.scalar_kernels.dtypes import common_in_c
from optdb.host.theano.vectorized.scalar_kernels.entries import ArrayKernel, copy
from optdb.host.theano.vectorized.scalar_kernels.kernels import kernel_of, known_ops

__all__ = ["ArrayKernel", "common_in_c", "copy", "kernel_of", "known_ops"]
