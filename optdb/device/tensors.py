"""Stored tensors, and lazy tensors: a function's values for inputs of known shapes, before they are computed.

While a function is exported, lengths may be symbolic (see :mod:`optdb.runtime.sizes`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.gemm.operations import Product
from optdb.codegen.loops.body import Buffer, Index
from optdb.codegen.operation import ArraySpec, Operation
from optdb.codegen.scalars.costs import DIVISIONS, is_cheap
from optdb.codegen.scalars.program import ScalarProgram
from optdb.runtime.context import Context
from optdb.runtime.sizes import SymInt, SymIntVector, as_int, is_same, largest, smallest
from optdb.runtime.sizes import resolve as resolve_size

#: Maximum length of a short axis; a kernel computes all elements along a short axis at once.
SHORT = 16


class Tensor:
    """An array of known shape and dtype that a function computes. Tensors compare by identity."""

    #: The number of matrix elements that a CPU kernel may have to read for each element, if the tensor is computed from
    #: matrix-vector products.
    row_length = 0

    def __init__(self, shape: Sequence[int], dtype: str) -> None:
        self.shape: tuple[int, ...] = tuple(map(as_int, shape))
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @functools.cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}{list(self.shape)})"


class ArgumentTensor(Tensor):
    """An argument of the function, passed in each call."""


class Constant(Tensor):
    """An array that never changes; if `of_lengths` is set, its value may differ in calls with other input shapes."""

    def __init__(self, value: Any, of_lengths: bool = False) -> None:
        self.value = np.asarray(value)
        self.of_lengths = of_lengths
        super().__init__(self.value.shape, self.value.dtype.name)


class Lengths(Tensor):
    """Integers that each call of an exported function computes from the lengths of its arguments, in C order."""

    def __init__(self, numbers: Iterable[Any], shape: Sequence[int]) -> None:
        super().__init__(shape, "int64")
        self.numbers = tuple(numbers)

    @property
    def value(self) -> Any:
        """The only number, if there are no axes; else, a vector of all numbers."""
        return SymIntVector(self.numbers) if self.ndim else self.numbers[0]


def length_tensor(numbers: Iterable[Any], shape: Sequence[int]) -> Constant | Lengths:
    """Return a tensor of integers, in C order, that depend on the lengths of arguments."""
    values = [resolve_size(number) for number in numbers]
    if any(isinstance(number, SymInt) for number in values):
        return Lengths(values, shape)
    return Constant(np.asarray(values, "int64").reshape(shape), of_lengths=True)


class Mapped(Tensor):
    """A result of applying a scalar program elementwise to tensors, which are broadcast along axes of length 1."""

    def __init__(self, program: ScalarProgram, inputs: Sequence[Tensor], shape: Sequence[int], result: int = 0) -> None:
        super().__init__(shape, program.out_dtypes[result])
        self.program = program
        self.inputs = tuple(inputs)
        self.result = result
        self.row_length = functools.reduce(largest, [x.row_length for x in inputs], 0)

    @functools.cached_property
    def is_costly(self) -> bool:
        """Whether the program takes longer than reading its operands."""
        return not is_cheap(self.program, DIVISIONS)

    @functools.cached_property
    def divides(self) -> bool:
        """Whether the program takes longer than a few additions."""
        return not is_cheap(self.program)

    def uses_any(self, names: frozenset[str]) -> bool:
        """Whether the program contains any of the named scalar operations."""
        return any(scalar.name in names for scalar, _ in self.program.steps)


class Folded(Tensor):
    """A fold that removes some axes of a tensor; partial results have the accumulator's dtype."""

    def __init__(self, fold: str, x: Tensor, axes: Sequence[int], dtype: str, acc_dtype: str | None = None) -> None:
        self.axes = tuple(sorted(axes))
        self.kept = tuple(axis for axis in range(x.ndim) if axis not in self.axes)
        super().__init__([x.shape[axis] for axis in self.kept], dtype)
        self.fold = fold
        self.x = x
        self.acc_dtype = acc_dtype or dtype

    @functools.cached_property
    def count(self) -> int:
        return math.prod(self.x.shape[axis] for axis in self.axes)


class Scanned(Tensor):
    """A cumulative fold along an axis with the scalar op 'Add' or 'Mul'."""

    def __init__(self, fold: str, x: Tensor, axis: int) -> None:
        super().__init__(x.shape, x.dtype)
        self.fold = fold
        self.x = x
        self.axis = axis


@dataclass(frozen=True)
class Lookup:
    """A non-negative index that is read from an integer tensor, at the view's indices along some axes."""

    tensor: Tensor
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Coordinate:
    """The index along one axis of a view's source: an affine function of the indices in the view, plus a lookup."""

    const: int = 0
    #: Pairs of an axis of the view and a factor, by which the index along this axis is multiplied.
    terms: tuple[tuple[int, int], ...] = ()
    lookup: Lookup | None = None


class ViewTensor(Tensor):
    """Elements of a tensor at computed coordinates."""

    def __init__(self, x: Tensor, shape: Sequence[int], coordinates: Sequence[Coordinate]) -> None:
        super().__init__(shape, x.dtype)
        self.x = x
        self.coordinates = tuple(coordinates)
        self.row_length = x.row_length

    @functools.cached_property
    def is_affine(self) -> bool:
        """Whether no coordinate has a lookup."""
        return all(coordinate.lookup is None for coordinate in self.coordinates)

    @property
    def is_whole(self) -> bool:
        """Whether the view has all elements of its source, because each axis of the source is an axis of the view."""
        axes = [self._whole_axis(number) for number in range(self.x.ndim)]
        return bool(self.size) and None not in axes and len(set(axes)) == len(axes)

    def _whole_axis(self, number: int) -> int | None:
        """Return the axis of the view along which the source's axis `number` is read from start to end, if any."""
        coordinate, length = self.coordinates[number], self.x.shape[number]
        if is_same(length, 1):
            return -1 - number
        if coordinate.lookup is not None or not is_same(coordinate.const, 0) or len(coordinate.terms) != 1:
            return None
        ((axis, factor),) = coordinate.terms
        return axis if is_same(factor, 1) and is_same(self.shape[axis], length) else None


class ReshapedTensor(Tensor):
    """The elements of a tensor, in C order, in another shape."""

    def __init__(self, x: Tensor, shape: Sequence[int]) -> None:
        super().__init__(shape, x.dtype)
        self.x = x
        self.row_length = x.row_length


class Iota(Tensor):
    """The integers from 0 to `length` - 1, as int64."""

    def __init__(self, length: int) -> None:
        super().__init__((length,), "int64")


class Joined(Tensor):
    """The concatenation of nonempty tensors along an axis."""

    def __init__(self, parts: Sequence[Tensor], axis: int) -> None:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        super().__init__(shape, parts[0].dtype)
        self.parts = tuple(parts)
        self.axis = axis


@dataclass(frozen=True)
class Stripe:
    """A strided range of indices: `length` indices from `start` on, `step` apart."""

    start: int
    step: int
    length: int

    @property
    def bounds(self) -> tuple[int, int]:
        end = self.start + self.step * (self.length - 1)
        return smallest(self.start, end), largest(self.start, end)

    @property
    def slice(self) -> slice:
        """The indices as a slice, in ascending order."""
        low, high = self.bounds
        return slice(low, high + 1, abs(self.step))


@dataclass(frozen=True)
class ReplacedSlices:
    """Slices of a tensor along one axis, replaced one after another; later slices may overlap earlier slices."""

    axis: int
    count: int  #: The sum of the lengths of the slices.
    low: int
    high: int
    base: Tensor  #: The tensor before the first replacement.


class Replaced(Tensor):
    """A tensor with a strided slice replaced by another tensor, which is broadcast to the slice."""

    def __init__(self, x: Tensor, part: Tensor, stripes: Sequence[Stripe]) -> None:
        super().__init__(x.shape, x.dtype)
        self.x = x
        self.part = part
        self.stripes = tuple(stripes)

    @functools.cached_property
    def slices(self) -> ReplacedSlices | None:
        """The slices along an axis that this and earlier replacements set; None if this slice is not along one axis."""
        axes = [axis for axis, stripe in enumerate(self.stripes) if stripe != Stripe(0, 1, self.shape[axis])]
        if len(axes) != 1:
            return None
        (axis,) = axes
        low, high = self.stripes[axis].bounds
        own = ReplacedSlices(axis, self.stripes[axis].length, low, high, self.x)
        before = self.x.slices if isinstance(self.x, Replaced) else None
        if before is None or before.axis != axis:
            return own
        return ReplacedSlices(axis, own.count + before.count, min(low, before.low), max(high, before.high), before.base)


class ScatterSum(Tensor):
    """An array of zeros plus the elements of a tensor, each added at given coordinates."""

    def __init__(self, x: Tensor, shape: Sequence[int], coordinates: Sequence[Coordinate]) -> None:
        super().__init__(shape, x.dtype)
        self.x = x
        self.coordinates = tuple(coordinates)


class ScatterSet(Tensor):
    """A tensor with elements set from another tensor; if several elements have the same position, the last one wins."""

    def __init__(self, base: Tensor, x: Tensor, coordinates: Sequence[Coordinate]) -> None:
        super().__init__(base.shape, base.dtype)
        self.base = base
        self.x = x
        self.coordinates = tuple(coordinates)


class Application:
    """A device operation on stored tensors, and on NumPy values from the host; its outputs are `Computed` tensors.

    `make` takes the context, and returns the operation; `outputs` has the shapes and dtypes of the outputs.
    """

    def __init__(
        self, make: Callable[[Context], Operation], inputs: Sequence[Any], outputs: Sequence[tuple[Sequence[int], str]]
    ) -> None:
        self.make = make
        self.inputs = tuple(inputs)
        self.outputs = [Computed(self, number, shape, dtype) for number, (shape, dtype) in enumerate(outputs)]


class Computed(Tensor):
    """An output of an operation."""

    def __init__(self, application: Application, number: int, shape: Sequence[int], dtype: str) -> None:
        super().__init__(shape, dtype)
        self.application = application
        self.number = number


class MatrixProduct(Application):
    """A device operation that computes the product of two matrices of the same dtype."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        dtype = a.dtype
        super().__init__(lambda context: Product(context, dtype), [a, b], [((a.shape[0], b.shape[1]), dtype)])


def is_product(tensor: Tensor) -> bool:
    """Return whether a tensor is the output of a `MatrixProduct`."""
    return isinstance(tensor, Computed) and isinstance(tensor.application, MatrixProduct)


class MatrixVector(Tensor):
    """The product of a matrix and a vector."""

    def __init__(self, matrix: Tensor, vector: Tensor) -> None:
        super().__init__(matrix.shape[:1], matrix.dtype)
        self.matrix = matrix
        self.vector = vector
        self.row_length = matrix.shape[1]


def spec_of(x: Tensor) -> ArraySpec:
    """Return a tensor's array spec, in which no axis is broadcastable."""
    return ArraySpec(x.dtype, (False,) * x.ndim)


class Stored(Tensor):
    """A tensor in memory; by default, it is C-contiguous from the start of its buffer.

    Offset and strides are in elements. `is_parts` marks partial results, which are folded where they are read.
    """

    def __init__(
        self,
        buffer: Buffer,
        shape: Sequence[int],
        offset: int = 0,
        strides: Sequence[int] | None = None,
        is_parts: bool = False,
    ) -> None:
        super().__init__(shape, buffer.dtype)
        self.buffer = buffer
        self.offset = offset
        self.strides = c_strides(self.shape) if strides is None else tuple(strides)
        self.is_parts = is_parts

    def at(self, coordinates: Sequence[Index]) -> Index:
        index = Index(self.offset)
        for coordinate, stride in zip(coordinates, self.strides, strict=True):
            index = index.plus(coordinate, stride)
        return index

    @property
    def is_contiguous(self) -> bool:
        lengths = zip(self.strides, c_strides(self.shape), self.shape)
        return is_same(self.size, 0) or all(
            is_same(step, dense) or is_same(length, 1) for step, dense, length in lengths
        )

    def part(self, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Stored:
        return Stored(self.buffer, shape, offset, strides)


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous array."""
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


#: Maps a tensor to its replacement: `Stored`, or a tensor that is computed from stored tensors.
Replacements = MutableMapping[Tensor, Tensor]


def resolve(tensor: Tensor, replacements: Replacements) -> Tensor:
    """Return the replacement for a tensor: `Stored` if its elements are in memory, else the tensor to compute."""
    if isinstance(tensor, Stored):
        return tensor
    if tensor in replacements:
        while (replacement := replacements.get(tensor)) is not None:
            tensor = replacement
        return tensor
    found: Stored | None = None
    if isinstance(tensor, ViewTensor) and tensor.is_affine:
        source = resolve(tensor.x, replacements)
        found = _viewed(source, tensor) if isinstance(source, Stored) else None
    elif isinstance(tensor, ReshapedTensor):
        source = resolve(tensor.x, replacements)
        if isinstance(source, Stored) and source.is_contiguous:
            found = source.part(tensor.shape, source.offset, c_strides(tensor.shape))
    if found is None:
        return tensor
    replacements[tensor] = found
    return found


def whole_source(tensor: Tensor) -> Tensor:
    """Return the tensor that has the same elements as `tensor`, but perhaps repeated and in another shape."""
    while True:
        match tensor:
            case ReshapedTensor():
                tensor = tensor.x
            case ViewTensor() if tensor.is_whole:
                tensor = tensor.x
            case _:
                return tensor


def source_region(tensor: ViewTensor | ReshapedTensor, region: Stored) -> Stored | None:
    """Return where a tensor's source must be stored so that the tensor is stored in a region; None if there is no way.

    The region must be contiguous.
    """
    source = region.part(tensor.x.shape, region.offset, c_strides(tensor.x.shape))
    if isinstance(tensor, ReshapedTensor):
        return source
    if not tensor.is_affine or not is_same(tensor.size, tensor.x.size):
        return None
    viewed = _viewed(source, tensor)
    return source if viewed.is_contiguous and is_same(viewed.offset, region.offset) else None


def _viewed(source: Stored, view: ViewTensor) -> Stored:
    offset, strides = source.offset, [0] * view.ndim
    for coordinate, stride in zip(view.coordinates, source.strides, strict=True):
        offset += coordinate.const * stride
        for axis, factor in coordinate.terms:
            strides[axis] += factor * stride
    return source.part(view.shape, offset, strides)
