"""Tensors in memory, as strided elements of buffers."""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence

from optdb.codegen.loops.body import Buffer, Index
from optdb.device.tensors import ReshapedTensor, Tensor, ViewTensor


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
        return self.size == 0 or all(step == dense or length == 1 for step, dense, length in lengths)

    def part(self, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Stored:
        return Stored(self.buffer, shape, offset, strides)


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous array."""
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


#: Maps a tensor to its replacement: `Stored`, or a tensor that is computed from stored tensors.
Replacements = MutableMapping[Tensor, Tensor]


def resolve(tensor: Tensor, replacements: Replacements) -> Tensor:
    """Return the replacement of a tensor: `Stored` if its elements are in memory, else the tensor to compute."""
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


def _viewed(source: Stored, view: ViewTensor) -> Stored:
    offset, strides = source.offset, [0] * view.ndim
    for coordinate, stride in zip(view.coordinates, source.strides, strict=True):
        offset += coordinate.const * stride
        for axis, factor in coordinate.terms:
            strides[axis] += factor * stride
    return source.part(view.shape, offset, strides)
