"""Layouts of an operation's inputs, in which lengths that vary from call to call are symbolic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.device.tensors import c_strides
from optdb.numpy_types import AnyDtype
from optdb.runtime.arrays import Array, span
from optdb.runtime.exported.rules import Call, GuardSet
from optdb.runtime.expressions import AxisLength
from optdb.runtime.sizes import ShapeEnv, SymInt, operand

#: Returns the value of a symbolic length.
ValueOf = Callable[[SymInt], int]


@dataclass(frozen=True)
class InputLayout:
    """An input's layout in the memory that it spans; offset, strides and extent are in elements."""

    shape: tuple[Any, ...]
    dtype: AnyDtype
    strides: tuple[Any, ...]
    offset: Any
    #: The number of elements that the input spans.
    extent: Any

    @classmethod
    def of(cls, array: Array) -> InputLayout:
        start, stop = span(array)
        itemsize = array.dtype.itemsize
        strides = tuple([step // itemsize for step in array.strides])
        return cls(array.shape, array.dtype, strides, (array.offset - start) // itemsize, (stop - start) // itemsize)


class VaryingLayouts:
    """Layouts of inputs that differ in some lengths, and the symbolic lengths that stand for these.

    Parameters
    ----------
    arrays : sequence of Array
        The inputs of an example call.
    before : sequence of tuple of int
        The shapes of the inputs in another call. Each length that differs becomes symbolic; lengths that are equal in
        both calls share a symbol.

    Raises
    ------
    ValueError
        If nothing differs, if a varying length is below 2 in one of the calls, or if an input is not dense.
    """

    def __init__(self, arrays: Sequence[Array], before: Sequence[tuple[int, ...]]) -> None:
        self.rules = ShapeEnv()
        symbols: dict[tuple[int, int], SymInt] = {}
        shapes = []
        for number, (array, earlier) in enumerate(zip(arrays, before, strict=True)):
            shape: list[Any] = list(array.shape)
            for axis, pair in enumerate(zip(earlier, array.shape, strict=True)):
                if pair[0] != pair[1]:
                    if min(pair) < 2:
                        raise ValueError("kernels for lengths of 0 and 1 differ from others")
                    shape[axis] = symbols.setdefault(pair, self.rules.symbol(pair[1], AxisLength(number, axis)))
            shapes.append(shape)
        if not symbols:
            raise ValueError("no length differs")
        for symbol in symbols.values():
            self.rules.guard("<=", 2, symbol)
        self.layouts = [_dense(array, shape) for array, shape in zip(arrays, shapes, strict=True)]

    def close(self) -> None:
        """End the trace: from now on, calls may be compared with it."""
        self.rules.is_closed = True
        names = [f"input {number}" for number in range(len(self.layouts))]
        self._guards = GuardSet(self.rules.entries, list(self.rules.guards), names)

    def value_of(self, arrays: Sequence[Array], compute_units: int) -> ValueOf | None:
        """Return a function that returns symbolic lengths for inputs; None if the trace is not valid for the inputs."""
        ranks = [len(layout.shape) for layout in self.layouts]
        if ranks != [array.ndim for array in arrays]:
            return None
        values = self._guards.values(Call(arrays, compute_units))
        for layout, array in zip(self.layouts, arrays, strict=True):
            itemsize = array.dtype.itemsize
            for length, step, actual, stride in zip(layout.shape, layout.strides, array.shape, array.strides):
                if values.value(operand(length)) != actual:
                    return None
                if actual > 1 and values.value(operand(step)) * itemsize != stride:
                    return None
        if self._guards.broken(values) is not None:
            return None
        return lambda symbol: int(values[symbol.number])


def _dense(array: Array, shape: Sequence[Any]) -> InputLayout:
    """Return the layout of an array whose lengths are `shape`; raise ValueError if there are gaps between elements."""
    strides: list[Any] = list(c_strides(shape))
    axes = [axis for axis, length in enumerate(array.shape) if length != 1]
    extent: Any = 1
    reach = array.dtype.itemsize
    for axis in sorted(axes, key=lambda axis: (array.strides[axis], -axis)):
        if array.strides[axis] != reach:
            raise ValueError("an input is not dense")
        strides[axis] = extent
        reach *= array.shape[axis]
        extent = extent * shape[axis]
    return InputLayout(tuple(shape), array.dtype, tuple(strides), 0, extent)
