"""Runs elementwise ops over blocks whose intermediate values fit in the cache.

A node holds a `Pool` of buffers while it runs, so that threads and nested nodes do not share buffers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from theano.tensor.elemwise import Elemwise

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet
from optdb.host.theano.vectorized.ufunc_programs import program_of

#: The number of elements of a block, whose intermediate values must fit in the second-level cache.
BLOCK_ITEMS = 16384
#: The size in bytes of a complex128, the largest number.
_ITEM_BYTES = 16


class Pool:
    """Numbered buffers, each for one block."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def view(self, number: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return a C-contiguous array in the buffer with this number."""
        while len(self._buffers) <= number:
            self._buffers.append(np.empty(BLOCK_ITEMS * _ITEM_BYTES, np.uint8))
        return np.ndarray(shape, dtype, self._buffers[number])


_free_pools: deque[Pool] = deque()


def _borrow_pool() -> Pool:
    try:
        return _free_pools.pop()
    except IndexError:
        return Pool()


def _give_back(pool: Pool) -> None:
    _free_pools.append(pool)


@computes(Elemwise)
def _make(node: Apply) -> Compute:
    compute = ElementwiseFunction(node).compute
    has_floats = any(var.type.dtype.startswith(("float", "complex")) for var in (*node.inputs, *node.outputs))
    return quiet(compute) if has_floats else compute


class ElementwiseFunction:
    """Runs an Elemwise node; everything that does not depend on values is precomputed."""

    def __init__(self, node: Apply) -> None:
        op = node.op
        assert isinstance(op, Elemwise)
        self._patterns = [var.type.broadcastable for var in node.inputs]
        self._dimensions = node.outputs[0].type.ndim
        #: For each output, its dtype and the input that it overwrites (None for a new array).
        self._outputs = [
            (np.dtype(var.type.dtype), op.inplace_pattern.get(index)) for index, var in enumerate(node.outputs)
        ]
        numbers = [all(pattern) for pattern in self._patterns]
        full = [index for index, pattern in enumerate(self._patterns) if pattern == node.outputs[0].type.broadcastable]
        #: The first input with the outputs' broadcast pattern (None if there is none), and the other inputs with this
        #: pattern.
        self._first = full[0] if full else None
        self._others = full[1:]
        #: The inputs of which some dimensions are broadcast, each with a list of the dimensions that are not broadcast.
        self._partial = [
            (index, [axis for axis, is_broadcast in enumerate(pattern) if not is_broadcast])
            for index, pattern in enumerate(self._patterns)
            if index not in full and not numbers[index]
        ]
        self._program = program_of(op.scalar_op, node.inputs, numbers, op.inplace_pattern)
        self._block_size = math.inf if self._program.is_ufunc else BLOCK_ITEMS
        self._views: tuple[Any, Any, tuple[np.ndarray, ...]] = None, None, ()

    def compute(self, inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        """Compute the outputs and store them in the storage cells."""
        shape = self._shape(inputs) if self._first is None else inputs[self._first].shape
        for index in self._others:
            if inputs[index].shape != shape:
                raise self._mismatch(inputs)
        for index, axes in self._partial:
            lengths = inputs[index].shape
            for axis in axes:
                if lengths[axis] != shape[axis]:
                    raise self._mismatch(inputs)
        outputs = [
            np.empty(shape, dtype) if overwritten is None else inputs[overwritten]
            for dtype, overwritten in self._outputs
        ]
        size = math.prod(shape)
        if 0 < size <= self._block_size:
            self._run([*inputs, *outputs], shape)
        elif size:
            for block, block_shape in _blocks(*_flattened([*inputs, *outputs], shape)):
                self._run(block, block_shape)
        for cell, output in zip(storage, outputs, strict=True):
            cell[0] = output

    def _shape(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        shape = [1] * self._dimensions
        for index, axes in self._partial:
            for axis in axes:
                shape[axis] = inputs[index].shape[axis]
        return tuple(shape)

    def _mismatch(self, inputs: Sequence[Any]) -> ValueError:
        shapes = [_described(value.shape, pattern) for value, pattern in zip(inputs, self._patterns, strict=True)]
        return ValueError(f"Dimension mismatch; shapes are {', '.join(shapes)}")

    def _run(self, arrays: Sequence[Any], shape: tuple[int, ...]) -> None:
        if not self._program.temporaries:
            self._program.run(*arrays)
            return
        pool = _borrow_pool()
        known_pool, known_shape, views = self._views
        if known_pool is not pool or known_shape != shape:
            views = self._registers(pool, shape)
        try:
            self._program.run(*arrays, *views)
        finally:
            _give_back(pool)

    def _registers(self, pool: Pool, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        """Return the program's registers, and keep them for the next call."""
        number = (1,) * len(shape)
        views = tuple(
            pool.view(register.number, number if register.is_number else shape, register.dtype)
            for register in self._program.temporaries
        )
        self._views = pool, shape, views
        return views


def _described(shape: Sequence[int], pattern: Sequence[bool]) -> str:
    lengths = ("*" if is_broadcast else str(length) for length, is_broadcast in zip(shape, pattern, strict=True))
    return f"({', '.join(lengths)})"


def _flattened(arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[Sequence[Any], tuple[int, ...]]:
    """Flatten all arrays if each array with more than one element is contiguous and has the given shape."""
    full = [array for array in arrays if array.size > 1]
    if any(array.shape != shape or not array.flags.c_contiguous for array in full):
        return arrays, shape
    return [array.reshape(-1) for array in arrays], (math.prod(shape),)


def _blocks(arrays: Sequence[Any], shape: tuple[int, ...]) -> Iterator[tuple[list[Any], tuple[int, ...]]]:
    """Divide arrays into blocks of at most `BLOCK_ITEMS` elements, along the first axis whose slices fit in a block."""
    axis, inner = 0, math.prod(shape[1:])
    while inner > BLOCK_ITEMS:
        axis += 1
        inner //= shape[axis]
    rows = BLOCK_ITEMS // inner
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], rows):
            stop = min(start + rows, shape[axis])
            block = [_block(array, outer, start, stop) for array in arrays]
            yield block, (1,) * axis + (stop - start, *shape[axis + 1 :])


def _block(array: Any, outer: tuple[int, ...], start: int, stop: int) -> Any:
    """Index the first axes by `outer`, and the next axis from `start` to `stop`; leave axes of length 1 whole."""
    bounds = [*((index, index + 1) for index in outer), (start, stop)]
    slices = [slice(None) if length == 1 else slice(*bound) for length, bound in zip(array.shape, bounds, strict=False)]
    return array[tuple(slices)]
