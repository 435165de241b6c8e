"""Matrices that are turned over before a product, so that its kernel reads them the quicker way.

The kernel of `copied` computes a product fastest where the rows of the left matrix, and the columns of the right one,
stand side by side. To copy a large matrix so takes less than that gains, if its numbers are used often enough: each as
often as the other matrix has columns, or rows.
"""

from __future__ import annotations

from dataclasses import replace

from optdb.codegen.gemm.launches import Launch, pack, product_kernel
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import functions

#: The side of the square that a group copies, and how many rows of it at once.
_SIDE, _ROWS = 32, 8
#: Rows of a copy begin at multiples of so many numbers.
_QUAD = 4


def turn_kernel() -> Kernel:
    """Return the kernel that turns a matrix over."""
    return product_kernel(functions("gemm/turning.cl")["matmul_turned"], "float32", SIDE=_SIDE, ROWS=_ROWS)


def turn_left(problem: Problem, copy: str) -> tuple[Problem, Launch, int]:
    """Return a product whose left matrix is a copy that is turned over, the launch that makes it, and its elements.

    The copy is the array with the letter `copy`; the matrix has its terms side by side, and is the only one of a batch.
    """
    launch, pitch, size = _turn(problem.m, problem.k, problem.a[1], "a" + copy)
    return replace(problem, a=(0, 1, pitch)), launch, size


def turn_right(problem: Problem, copy: str) -> tuple[Problem, Launch, int]:
    """Return the same for the right matrix."""
    launch, pitch, size = _turn(problem.n, problem.k, problem.b[2], "b" + copy)
    return replace(problem, b=(0, pitch, 1)), launch, size


def _turn(rows: int, length: int, row: int, arrays: str) -> tuple[Launch, int, int]:
    pitch = -(-rows // _QUAD) * _QUAD
    items = -(-length // _SIDE) * _SIDE, -(-rows // _SIDE) * _ROWS
    launch = Launch("matmul_turned", items, (_SIDE, _ROWS), (pack(rows, length, row, pitch),), arrays)
    return launch, pitch, length * pitch
