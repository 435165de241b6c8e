"""Detection, on the device, of inputs that the host's linear algebra rejects, and SciPy's errors for them.

The second output has two numbers: whether an input is not finite, and the position of an invalid pivot, if any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import view, with_axis
from optdb.codegen.linalg.batches import Stacking
from optdb.codegen.linalg.blocks import launch_groups, whole_kernel
from optdb.codegen.linalg.operations import Cholesky, SolveTriangular, check_square, factors
from optdb.codegen.operation import Kernels, Outputs, output_array
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, fill_zeros
from optdb.runtime.context import Context

#: `find_faults` in common.cl subtracts the index of a 0 on a diagonal from this number.
_NONE = 2**31 - 1


def require_positive_definite(info: HostArray) -> None:
    """Raise LinAlgError if the second output of a factorization says that a matrix is not positive definite."""
    failed = np.argwhere(np.asarray(info))
    if not len(failed):
        return
    index = tuple(map(int, failed[0]))
    which = f" {index if len(index) > 1 else index[0]} of the batch" if index else ""
    raise np.linalg.LinAlgError(f"{int(info[index])}-th leading minor of the array{which} is not positive definite")


def require_finite(faults: HostArray) -> None:
    """Raise ValueError if an input has an element that is not finite."""
    if faults[0]:
        raise ValueError("array must not contain infs or NaNs")


def require_factor(faults: HostArray) -> None:
    """Raise SciPy's error for the faults that `CheckedCholesky` found, if there are any."""
    require_finite(faults)
    require_positive_definite(faults[1])


def require_solution(faults: HostArray, rows: int) -> None:
    """Raise ValueError or LinAlgError, like SciPy, for the faults that `CheckedSolveTriangular` found, if any."""
    require_finite(faults)
    if faults[1]:
        matrix, row = divmod(_NONE - int(faults[1]), rows)
        which = f" of matrix {matrix} of the batch" if matrix else ""
        raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {row}{which}")


class _FaultFinder:
    def __init__(self, context: Context, dtype: str, stacking: Stacking) -> None:
        self._context = context
        self._dtype = dtype
        self._stacking = stacking

    def kernels(self) -> list[Kernel]:
        return [whole_kernel("find_faults", self._dtype, self._context, NONE=_NONE)]

    def find(self, kernels: Kernels, x: Array, faults: Array, diagonal: bool = False) -> None:
        """Set `faults[0]` if an element is not finite and, with `diagonal`, `faults[1]` if a diagonal has a 0."""
        if not x.size:
            return
        x = with_axis(x, 0) if x.ndim == 1 else x
        matrices = self._stacking.batch(kernels, self._context, x, x.shape[:-2])
        count, n, columns = matrices.shape
        steps = [step // x.dtype.itemsize for step in matrices.strides]
        args = [n, columns, int(diagonal), matrices, *steps, faults]
        launch_groups(kernels["find_faults"], self._context, count * n, *args)


def _no_faults(storage: list[Any], context: Context) -> Array:
    return fill_zeros(output_array(storage, context, (2,), "int32"))


@dataclass(eq=False)
class CheckedCholesky(Cholesky):
    """The Cholesky factor of one matrix, and a second output for `require_factor`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.x.ndim != 2:
            raise TypeError(f"{self} takes a matrix, not an array of {self.x.ndim} axes")
        self._finder = _FaultFinder(self.context, self.x.dtype, self._stacking)

    def kernels(self) -> list[Kernel]:
        return [*super().kernels(), *self._finder.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        check_square(self, x)
        faults = _no_faults(outputs[1], self.context)
        self._finder.find(kernels, x, faults)
        out = output_array(outputs[0], self.context, x.shape, x.dtype)
        item = faults.dtype.itemsize
        factors(kernels, self.context, self._stacking, x, out, view(faults, (1,), (item,), item), self.lower)


@dataclass(eq=False)
class CheckedSolveTriangular(SolveTriangular):
    """The solutions of triangular systems, and a second output for `require_solution`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._finder = _FaultFinder(self.context, self.a.dtype, self._stacking)

    def kernels(self) -> list[Kernel]:
        return [*super().kernels(), *self._finder.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        super().run(inputs, outputs[:1], kernels)
        faults = _no_faults(outputs[1], self.context)
        a, b = inputs
        self._finder.find(kernels, a, faults, diagonal=True)
        self._finder.find(kernels, b, faults)
