"""Elementwise kernels and their launches; all launch arguments except arrays are cached by shapes and strides."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elementwise import QUAD, WIDTH, ElementCode, Operand, has_quad_rows
from optdb.codegen.kernels import Kernel
from optdb.codegen.kernels.launching import BoundKernel, LaunchCache
from optdb.codegen.layout import broadcast_strides, chunks, collapse, is_contiguous, size_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation
from optdb.codegen.source import ROUND_EACH_STEP
from optdb.runtime.arrays import Array, DeviceArray, empty
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DeviceKind
from optdb.runtime.sizes import SymInt

#: The OpenCL C type for bitwise copies, by item size in bytes.
RAW = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}

#: Size of the code caches, which identical operations share.
CODES = 1024

#: The largest index that kernels compute in 32 bits.
_NARROW = 2**31 - 1


class ElementKernels:
    """Kernels that compute arrays elementwise with an `ElementCode`."""

    def __init__(self, code: ElementCode, numbers: Sequence[Any] = ()) -> None:
        self._code = code
        self._numbers = tuple(numbers)
        self._bound: LaunchCache[BoundKernel] = LaunchCache()

    @classmethod
    def copying(
        cls, dtype: str, ndim: int, name: str = "copy", single: bool = False, context: Context | None = None
    ) -> ElementKernels:
        """Return kernels that copy arrays of any dtype bitwise, for any device or for the device of a context."""
        size = np.dtype(dtype).itemsize
        raw = RAW[size]
        arrays = (Operand("i0", raw, raw, single=single, size=size),), (Operand("o0", raw, raw, size=size),)
        return cls(ElementCode(*arrays, "o0 = i0;", ndim, name, device_kind=in_quads(context)))

    def kernels(self) -> list[Kernel]:
        """Return the kernels, which share one source."""
        return list(_kernels(self._code))

    def launch(
        self,
        kernels: Kernels,
        context: Context,
        shape: Sequence[int],
        arrays: Sequence[Array],
        numbers: Sequence[Any] = (),
    ) -> None:
        """Launch a kernel over the broadcast shape of the arrays; `numbers` are the values of `ElementCode.numbers`."""
        if not size_of(shape):
            return
        numbers = numbers or self._numbers
        # The key contains the bits of numbers, because 0.0 equals -0.0, and NaN does not equal itself.
        bits = [np.asarray(number).tobytes() for number in numbers]
        key = (self._in_quads(context, arrays), *bits, *[(array.shape, array.strides) for array in arrays])
        bound = self._bound.get(key, lambda: self._bind(kernels, context, shape, arrays, numbers), owner=kernels)
        bound.launch(arrays)

    def _bind(
        self, kernels: Kernels, context: Context, shape: Sequence[int], arrays: Sequence[Array], numbers: Sequence[Any]
    ) -> BoundKernel:
        code = self._code
        n = size_of(shape)
        lengths, steps = collapse(shape, [broadcast_strides(array) for array in arrays])
        if code.device_kind == "cpu":
            lengths, steps = _longest_last(lengths, steps)
        items, chunk = chunks(context, n)
        walked = [array_steps for x, array_steps in zip(code.operands, steps, strict=True) if not x.single]
        alike = len(lengths) <= 1 and all(array_steps in ((1,), ()) for array_steps in walked)
        if alike and code.device_kind is None:
            kind, lengths, walked = "alike", (), []
        elif alike and self._in_quads(context, arrays):
            kind, lengths, walked = "quads", (), []
            items, chunk = -(-n // QUAD), QUAD
        else:
            kind = self._kind(n, lengths, walked)
            if kind == "narrow" and self._in_rows_of_quads(context, lengths, walked, arrays):
                kind, items = "row_quads", n // QUAD
            missing = code.ndim - len(lengths)
            lengths, walked = (1,) * missing + lengths, [(0,) * missing + array_steps for array_steps in walked]
        args = [n, chunk, *numbers, *lengths, *arrays, *[step for array_steps in walked for step in array_steps]]
        kernel = kernels[f"{code.name}_{kind}"]
        if context.profile.runs_items_serially:
            return kernel.bound(items, 1, args)
        return kernel.bound(*kernel.automatic_grid(items), args)

    def _in_quads(self, context: Context, arrays: Sequence[Array]) -> bool:
        """Return whether to access four elements at once, which is done on GPUs for large, suitably aligned arrays."""
        # If a GPU starts all items at once, one element per item is faster. In exported files, which are for any GPU,
        # `at_once` is 0.
        at_once = context.profile.items_at_once * context.profile.compute_units
        if self._code.device_kind != "gpu" or (at_once > 0 and arrays[-1].size <= at_once):
            return False
        return not any(
            array.offset % (QUAD * x.size) for x, array in zip(self._code.operands, arrays, strict=True) if not x.single
        )

    def _in_rows_of_quads(
        self, context: Context, lengths: Sequence[int], walked: Sequence[Sequence[int]], arrays: Sequence[Array]
    ) -> bool:
        """Return whether rows consist of aligned groups of four elements."""
        outputs = walked[len(self._code.many) :]
        if len(lengths) < 2 or any(array_steps[-1] != 1 for array_steps in outputs):
            return False
        if isinstance(lengths[-1], SymInt) or lengths[-1] % QUAD or not all(map(has_quad_rows, walked)):
            return False
        return self._in_quads(context, arrays)

    def _kind(self, n: int, lengths: Sequence[int], walked: Sequence[Sequence[int]]) -> str:
        if self._code.device_kind == "cpu":
            return "lanes"
        if self._code.device_kind is None:
            return "strided"
        return "narrow" if max([n, *(_reach(lengths, array_steps) for array_steps in walked)]) <= _NARROW else "wide"


@functools.lru_cache(maxsize=CODES)
def _kernels(code: ElementCode) -> list[Kernel]:
    return Kernel.all_of(ROUND_EACH_STEP + code.helpers + code.kernels(), code.flags)


def _reach(lengths: Sequence[int], steps: Sequence[int]) -> int:
    """Return an upper bound on the distance between any element and the first element."""
    walked_lengths = lengths[len(lengths) - len(steps) :]
    return sum(length * abs(step) for length, step in zip(walked_lengths, steps, strict=True))


def _longest_last(
    lengths: tuple[int, ...], steps: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return lengths and strides with the longest axis last, if the last axis is shorter than a vector."""
    if not lengths or lengths[-1] >= WIDTH:
        return lengths, steps
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    order = [axis for axis in range(len(lengths)) if axis != longest] + [longest]
    return tuple(lengths[axis] for axis in order), tuple(
        tuple(array_steps[axis] for axis in order) for array_steps in steps
    )


def in_quads(context: Context | None) -> DeviceKind | None:
    """Return 'gpu' if the context's device is a GPU, on which kernels access four elements at once; else None."""
    return "gpu" if context is not None and context.profile.device_kind == "gpu" else None


def copying(spec: Any, name: str = "copy", context: Context | None = None) -> ElementKernels:
    """Return the kernels that copy arrays of the dtype and rank of `spec`."""
    return ElementKernels.copying(spec.dtype, spec.ndim, name, context=context)


@dataclass(eq=False)
class Copying(Operation):
    """Base class of operations that only copy an array, or parts of it."""

    x: ArraySpec

    def __post_init__(self) -> None:
        self._copying = copying(self.x, context=self.context)

    def kernels(self) -> list[Kernel]:
        return self._copying.kernels()


def copied(
    x: Array, copying: ElementKernels, kernels: Kernels, context: Context, shape: Sequence[int] | None = None
) -> DeviceArray:
    """Return a C-contiguous copy of `x`, broadcast to `shape` if given."""
    shape = tuple(x.shape if shape is None else shape)
    result = empty(context, shape, x.dtype)
    copying.launch(kernels, context, shape, [x, result])
    return result


def contiguous(
    x: Array, spec: Any, kernels: Kernels, context: Context, name: str = "copy", shape: Sequence[int] | None = None
) -> Array:
    """Return `x` if it is C-contiguous and has the given `shape`; otherwise a copy made by `copying` kernels."""
    if is_contiguous(x) and (shape is None or tuple(x.shape) == tuple(shape)):
        return x
    return copied(x, copying(spec, name), kernels, context, shape)
