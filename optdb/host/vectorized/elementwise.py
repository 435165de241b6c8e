"""Elementwise ops: the program of the scalar op, run over blocks whose intermediate values stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from theano.tensor.elemwise import Elemwise

from optdb.host.api.graph import Apply
from optdb.host.vectorized import scratch
from optdb.host.vectorized.programs import program_of
from optdb.host.vectorized.quiet import quiet
from optdb.host.vectorized.registry import Compute, computes

__all__ = ["ElementwiseFunction"]


@computes(Elemwise)
def _make(node: Apply) -> Compute:
    return quiet(ElementwiseFunction(node).compute)


class ElementwiseFunction:
    """Computes a node of an Elemwise.

    Raises
    ------
    ValueError
        If the inputs have different lengths in a dimension that is not broadcast.
    """

    def __init__(self, node: Apply) -> None:
        op = node.op
        self._patterns = [var.type.broadcastable for var in node.inputs]
        self._dtypes = [np.dtype(var.type.dtype) for var in node.outputs]
        #: Which input each output is written over; None for those that get an array of their own.
        self._overwritten = [op.inplace_pattern.get(index) for index in range(len(node.outputs))]
        self._pattern = node.outputs[0].type.broadcastable
        #: The inputs that have the shape of the outputs, and those of which some dimensions are broadcast.
        self._full = [index for index, pattern in enumerate(self._patterns) if pattern == self._pattern]
        self._numbers = [all(pattern) for pattern in self._patterns]
        self._partial = [
            index
            for index, pattern in enumerate(self._patterns)
            if pattern != self._pattern and not self._numbers[index]
        ]
        self._numbers_with_axes = [
            index for index, is_number in enumerate(self._numbers) if is_number and self._pattern
        ]
        self._program = program_of(op.scalar_op, node.inputs, self._numbers, op.inplace_pattern)
        #: The registers of the last call, with their pool and shape.
        self._views: tuple[Any, Any, tuple[np.ndarray, ...]] = None, None, ()

    def compute(self, inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        """Compute the outputs of the node into the storage cells."""
        shape = self._shape(inputs)
        outputs = [
            np.empty(shape, dtype) if overwritten is None else inputs[overwritten]
            for dtype, overwritten in zip(self._dtypes, self._overwritten, strict=True)
        ]
        self._fill([*inputs, *outputs], shape)
        for cell, output in zip(storage, outputs, strict=True):
            cell[0] = output

    def _shape(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """Return the shape of the outputs, after the check that Theano's code makes."""
        if self._full:
            shape = inputs[self._full[0]].shape
            for index in self._full:
                if inputs[index].shape != shape:
                    raise self._mismatch(inputs)
        else:
            shape = self._common_shape(inputs)
        for index in self._partial:
            for length, expected, is_broadcast in zip(inputs[index].shape, shape, self._patterns[index], strict=True):
                if length != expected and not is_broadcast:
                    raise self._mismatch(inputs)
        return shape

    def _common_shape(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        shape = [1] * len(self._pattern)
        for index in self._partial:
            for axis, is_broadcast in enumerate(self._patterns[index]):
                if not is_broadcast:
                    shape[axis] = inputs[index].shape[axis]
        return tuple(shape)

    def _mismatch(self, inputs: Sequence[Any]) -> ValueError:
        shapes = [_described(value.shape, pattern) for value, pattern in zip(inputs, self._patterns, strict=True)]
        return ValueError(f"Dimension mismatch; shapes are {', '.join(shapes)}")

    def _fill(self, arrays: list[Any], shape: tuple[int, ...]) -> None:
        """Run the program on the inputs and outputs."""
        for index in self._numbers_with_axes:
            arrays[index] = arrays[index].reshape(())
        size = math.prod(shape)
        if size <= scratch.BLOCK_ITEMS or self._program.is_ufunc:
            if size:
                self._run(arrays, shape)
            return
        for block, block_shape in _blocks(*_flattened(arrays, shape)):
            self._run(block, block_shape)

    def _run(self, arrays: Sequence[Any], shape: tuple[int, ...]) -> None:
        if not self._program.temporaries:
            self._program.run(*arrays)
            return
        pool = scratch.borrow()
        try:
            self._program.run(*arrays, *self._temporaries(pool, shape))
        finally:
            scratch.give_back(pool)

    def _temporaries(self, pool: scratch.Pool, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        """Return the registers of the program; those of the previous call, where pool and shape are the same."""
        known_pool, known_shape, views = self._views
        if known_pool is not pool or known_shape != shape:
            views = tuple(
                pool.view(register.number, () if register.is_number else shape, register.dtype)
                for register in self._program.temporaries
            )
            self._views = pool, shape, views
        return views


def _described(shape: Sequence[int], pattern: Sequence[bool]) -> str:
    lengths = ("*" if is_broadcast else str(length) for length, is_broadcast in zip(shape, pattern, strict=True))
    return f"({', '.join(lengths)})"


def _flattened(arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[Sequence[Any], tuple[int, ...]]:
    """Return the arrays with one axis, where they lie in memory in the same order; numbers stay as they are."""
    with_axes = [array for array in arrays if array.ndim]
    if any(array.shape != shape for array in with_axes):
        return arrays, shape
    if all(array.flags.c_contiguous for array in with_axes):
        return [array.reshape(-1) if array.ndim else array for array in arrays], (math.prod(shape),)
    if all(array.flags.f_contiguous for array in with_axes):
        return [array.T.reshape(-1) if array.ndim else array for array in arrays], (math.prod(shape),)
    return arrays, shape


def _blocks(arrays: Sequence[Any], shape: tuple[int, ...]) -> Iterator[tuple[list[Any], tuple[int, ...]]]:
    """Divide arrays into blocks of at most `BLOCK_ITEMS` elements, along the first axis that allows it."""
    axis, inner = 0, math.prod(shape[1:])
    while inner > scratch.BLOCK_ITEMS:
        axis += 1
        inner //= shape[axis]
    rows = scratch.BLOCK_ITEMS // inner
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], rows):
            stop = min(start + rows, shape[axis])
            block = [_block(array, outer, start, stop, shape) for array in arrays]
            yield block, (1,) * axis + (stop - start, *shape[axis + 1 :])


def _block(array: Any, outer: tuple[int, ...], start: int, stop: int, shape: tuple[int, ...]) -> Any:
    """Return the part of an array in rows `start` to `stop` of the axis after those that `outer` indexes."""
    if not array.ndim:
        return array
    bounds = [*((index, index + 1) for index in outer), (start, stop)]
    slices = [slice(None) if length == 1 else slice(*bound) for length, bound in zip(array.shape, bounds, strict=False)]
    return array[tuple(slices)]
