"""Views of arrays as batches of matrices, with three axes: matrices, rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.codegen.elements import ElementKernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import broadcast_strides, c_strides, collapse, size_of, view
from optdb.codegen.operation import Kernels
from optdb.runtime.arrays import Array, empty
from optdb.runtime.context import Context


class Stacking:
    """Converts arrays of a dtype, which broadcast to a rank, to batches of matrices: views if possible, else copies."""

    def __init__(self, dtype: str, ndim: int) -> None:
        self._ndim = ndim
        self._copying = ElementKernels.copying(dtype, ndim)

    def kernels(self) -> list[Kernel]:
        """Return the kernels that copy."""
        return self._copying.kernels()

    def copy(self, kernels: Kernels, context: Context, x: Array, out: Array) -> None:
        """Copy an array to another one, with broadcasting."""
        out = self._padded(out)
        self._copying.launch(kernels, context, out.shape, [self._padded(x), out])

    def batch(self, kernels: Kernels, context: Context, x: Array, batch: Sequence[int]) -> Array:
        """Return an array's matrices (its last two axes) broadcast to a batch; one matrix if the batch shares it."""
        x, batch = self._padded(x), (1,) * (self._ndim - 2 - len(batch)) + tuple(batch)
        count, matrix = size_of(batch), x.shape[-2:]
        if count == 0:
            return view(x, (0, *matrix), (0, *x.strides[-2:]))
        lengths, (steps,) = collapse(batch, [broadcast_strides(view(x, x.shape[:-2], x.strides[:-2]))])
        if len(lengths) <= 1:
            step = steps[0] if lengths else 0
            return view(x, (count if step else 1, *matrix), (step * x.dtype.itemsize, *x.strides[-2:]))
        whole = empty(context, (*batch, *matrix), x.dtype)
        self._copying.launch(kernels, context, whole.shape, [x, whole])
        return flat(whole)

    def _padded(self, x: Array) -> Array:
        missing = self._ndim - x.ndim
        if not missing:
            return x
        return view(x, (1,) * missing + tuple(x.shape), (x.dtype.itemsize,) * missing + tuple(x.strides))


def flat(x: Array) -> Array:
    """Return the matrices of a C-contiguous array as one batch."""
    shape = (size_of(x.shape[:-2]), *x.shape[-2:])
    return view(x, shape, c_strides(shape, x.dtype.itemsize))


def transposed(x: Array) -> Array:
    """Return a batch with its matrices transposed."""
    (batch, rows, columns), (b, r, c) = x.shape, x.strides
    return view(x, (batch, columns, rows), (b, c, r))


def backwards(x: Array, columns: bool) -> Array:
    """Return a batch with the rows of its matrices reversed; with `columns`, columns are also reversed."""
    (_, m, n), (b, r, c) = x.shape, x.strides
    if not columns:
        return view(x, x.shape, (b, -r, c), (m - 1) * r)
    return view(x, x.shape, (b, -r, -c), (m - 1) * r + (n - 1) * c)


def part(x: Array, rows: tuple[int, int], columns: tuple[int, int] | None = None) -> Array:
    """Return a range of rows of each matrix and, optionally, a range of columns; ranges exclude their ends."""
    first, last = columns or (0, x.shape[2])
    _, row, column = x.strides
    shape = (x.shape[0], rows[1] - rows[0], last - first)
    return view(x, shape, x.strides, rows[0] * row + first * column)


def broadcast_batches(op: object, *shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which the batches of arrays broadcast; raise ValueError if they do not."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for lengths in zip(*padded):
        wide = [length for length in lengths if length != 1]
        if any(length != wide[0] for length in wide):
            raise ValueError(f"{op} cannot broadcast batches of shapes {' and '.join(map(str, map(tuple, shapes)))}")
        result.append(wide[0] if wide else 1)
    return tuple(result)
