"""What the host's linear algebra refuses, found out on the device, and the errors that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import with_axis
from optdb.codegen.linalg.batches import Stacking
from optdb.codegen.linalg.blocks import launch_groups, whole_kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.runtime.arrays import Array, fill_zeros

#: See `find_faults` in common.cl: the number from which the index of a 0 on a diagonal is subtracted.
_NONE = 2**31 - 1


def require_positive_definite(info: np.ndarray) -> None:
    """Raise LinAlgError if the second output of a factorization says that a matrix is not positive definite."""
    failed = np.argwhere(np.asarray(info))
    if not len(failed):
        return
    index = tuple(map(int, failed[0]))
    which = f" {index if len(index) > 1 else index[0]} of the batch" if index else ""
    raise np.linalg.LinAlgError(f"{int(info[index])}-th leading minor of the array{which} is not positive definite")


@dataclass(eq=False)
class SystemFaults(Operation):
    """What keeps systems from a finite solution: an int32 array of two, see `raise_faults`.

    The inputs are matrices, and one more array, such as their right sides.
    """

    #: The matrices.
    a: ArraySpec
    #: The other array; None if there is none.
    b: ArraySpec | None = None
    #: Whether a 0 on the diagonal of a matrix is a fault.
    triangular: bool = True

    def __post_init__(self) -> None:
        specs = [self.a] if self.b is None else [self.a, self.b]
        self._stacking = Stacking(self.a.dtype, max(2, *[spec.ndim for spec in specs]))

    def kernels(self) -> list[Kernel]:
        kernel = whole_kernel("find_faults", self.a.dtype, self.context, NONE=_NONE)
        return [kernel, *self._stacking.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        faults = fill_zeros(output_array(outputs[0], self.context, (2,), "int32"))
        for x, diagonal in zip(inputs, (self.triangular, False), strict=False):
            if x.size:
                self._find(kernels, self._stacking.batch(kernels, self.context, *_as_matrices(x)), diagonal, faults)

    def _find(self, kernels: Kernels, x: Array, diagonal: bool, faults: Array) -> None:
        count, n, columns = x.shape
        steps = [step // x.dtype.itemsize for step in x.strides]
        launch_groups(kernels["find_faults"], self.context, count * n, n, columns, int(diagonal), x, *steps, faults)


def raise_faults(faults: np.ndarray, rows: int) -> None:
    """Raise the error that SciPy has for what `SystemFaults` found in matrices of so many rows.

    Raises
    ------
    ValueError
        If a number is not finite.
    numpy.linalg.LinAlgError
        If there is a 0 on a diagonal.
    """
    not_finite, first_zero = map(int, faults)
    if not_finite:
        raise ValueError("array must not contain infs or NaNs")
    if first_zero:
        matrix, row = divmod(_NONE - first_zero, rows)
        which = f" of matrix {matrix} of the batch" if matrix else ""
        raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {row}{which}")


def _as_matrices(x: Array) -> tuple[Array, Sequence[int]]:
    """Return an array with at least two axes, and its batch."""
    x = with_axis(x, 0) if x.ndim == 1 else x
    return x, x.shape[:-2]
