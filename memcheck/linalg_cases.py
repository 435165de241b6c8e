"""Cases of linear algebra: matrices with sizes near the thresholds between kernels, for CPUs and GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from memcheck.case import Case, Given, wide
from optdb.opencl.ops.linalg import OpenCLCholesky, OpenCLSolveTriangular

BOTH = ("float32", "float64")


def _positive_definite(n: int, last: float = 2.0) -> Given:
    """Return a symmetric matrix that has a Cholesky factor, unless `last`, its last diagonal element, is too small."""
    value = np.fromfunction(lambda i, j: 2.0 ** -abs(i - j), (n, n))
    value[-1, -1] = last
    return Given((n, n), BOTH, value)


def _triangular(n: int) -> Given:
    return Given((n, n), BOTH, np.fromfunction(lambda i, j: 1 / (1 + i + j), (n, n)) + np.eye(n))


def _factor(lower: bool, checked: bool) -> Any:
    def factor(x: Any) -> Any:
        return OpenCLCholesky(lower, checked)(x)

    factor.__name__ = f"OpenCLCholesky {lower} {checked}"
    return factor


LINALG_CASES = [
    *[Case(_factor(True, True), _positive_definite(n)) for n in (3, 7, 20, 65, 71)],
    *[Case(_factor(False, False), _positive_definite(n)) for n in (1, 5, 33)],
    *[Case(_factor(True, False), _positive_definite(n, -1.0)) for n in (3, 20, 67)],
    *[Case(OpenCLSolveTriangular(), _triangular(n), wide(n, m)) for n, m in [(3, 5), (7, 1), (21, 37), (66, 3)]],
    *[Case(OpenCLSolveTriangular(False), _triangular(n), wide(n)) for n in (3, 35)],
    Case(OpenCLSolveTriangular(False), _triangular(67), wide(67, 5)),
    *[Case(OpenCLSolveTriangular(lower), _triangular(6), wide(6, 3)) for lower in (False, True)],
]
