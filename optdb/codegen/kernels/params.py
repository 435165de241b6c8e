"""Kernel parameters, and type checks of their arguments.

An argument of the wrong type raises an error here; OpenCL itself would reinterpret its bits.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.kernels.prelude import ctype
from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.library import cl
from optdb.runtime.sizes import SymbolicArgument, SymInt, specialize

#: Maps each kind of dtype to the Python types of its numbers. Every kind can represent the numbers of the kinds before
#: it.
_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("b", (bool, np.bool_)),
    ("iu", numbers.Integral),
    ("f", numbers.Real),
    ("c", numbers.Complex),
)
_OFFSET_DTYPE = np.dtype("uint64")
_Data: TypeAlias = "cl.MemoryObjectHolder | cl.SVMPointer | None"


#: Integers packed into one argument; they are symbolic during an export.
Packed: TypeAlias = "HostArray | SymbolicArgument"


class KernelArgumentError(TypeError):
    """Raised if a kernel is launched with an argument, or declared with a parameter, of the wrong type."""


class Param:
    """A kernel parameter. `slots` contains a dtype for each number that OpenCL passes, and None for each pointer."""

    slots: tuple[AnyDtype | None, ...] = (None,)

    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word

    def bind(self, value: Any, context: Context) -> tuple[Any, ...]:
        """Return the OpenCL arguments for a value, one for each element of `slots`.

        Raise KernelArgumentError if the value does not fit; the error's message is the rest of a sentence that begins
        with "argument 1 is".
        """
        raise NotImplementedError


class ScalarParam(Param):
    """A number."""

    def __init__(self, dtype: DTypeLike, word: str | None = None) -> None:
        self.dtype: AnyDtype = np.dtype(dtype)
        ctype(self.dtype)  # raises TypeError if kernels cannot use this dtype
        self.slots = (self.dtype,)
        self._breadth = next(i for i, (kinds, _) in enumerate(_KINDS) if self.dtype.kind in kinds)
        super().__init__(word or self.dtype.name)

    def bind(self, value: Any, context: Context) -> tuple[np.number[Any] | np.bool_ | SymbolicArgument]:
        return (SymbolicArgument(self.dtype, (value,)) if isinstance(value, SymInt) else self.converted(value),)

    def converted(self, value: Any) -> np.number[Any] | np.bool_:
        """Return a number of this dtype; raise KernelArgumentError if the value does not fit."""
        number = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
        breadth = next((i for i, (_, kind) in enumerate(_KINDS) if isinstance(number, kind)), None)
        if breadth is None:
            raise KernelArgumentError(f"{_described(value)}, not a {self}")
        if breadth > self._breadth:
            raise KernelArgumentError(f"{number!r}, not a {self}: convert it first, if the loss is intended")
        if self.dtype.kind in "iu" and not _fits(int(number), self.dtype):
            raise KernelArgumentError(f"{number}, which a {self} cannot hold")
        converted: np.number[Any] | np.bool_ = self.dtype.type(number)
        return converted


class ArrayParam(Param):
    """A device array: its buffer, and its offset in the buffer."""

    slots = (None, _OFFSET_DTYPE)

    def bind(self, value: Any, context: Context) -> tuple[_Data, np.uint64 | SymbolicArgument]:
        if not isinstance(value, Array):
            raise KernelArgumentError(f"{_described(value)}, not a device array: transfer it first")
        if value.context != context.cl_context:
            raise KernelArgumentError("an array of another context: transfer it to the kernel's first")
        return value.base_data, offset_argument(value.offset)


class BufferParam(Param):
    """A buffer, or an array at offset 0 of its buffer."""

    def bind(self, value: Any, context: Context) -> tuple[_Data]:
        if isinstance(value, cl.MemoryObject) or value is None:
            return (value,)
        buffer, offset = ARRAY.bind(value, context)
        if offset:
            raise KernelArgumentError(f"an array that begins {offset} bytes into its buffer: declare it as ARRAY")
        return (buffer,)


class LocalParam(Param):
    """Local memory, given as its size in bytes."""

    def bind(self, value: Any, context: Context) -> tuple[cl.LocalMemory]:
        if isinstance(value, cl.LocalMemory):
            return (value,)
        return (cl.LocalMemory(int(SIZE.converted(specialize(value)))),)


class SSizesParam(Param):
    """Up to 16 integers in one argument, because setting many small arguments takes longer than most launches."""

    slots = (cl.cltypes.long16,)
    _most = 16

    def bind(self, value: Any, context: Context) -> tuple[Packed]:
        packed = isinstance(value, np.ndarray | SymbolicArgument) and value.dtype == self.slots[0]
        return (value if packed else self.pack(value),)

    def pack(self, value: Sequence[int]) -> Packed:
        """Pack integers into an argument that launches can share; raise KernelArgumentError if they do not fit."""
        try:
            integers = [number if isinstance(number, SymInt) else int(SSIZE.converted(number)) for number in value]
        except TypeError as error:
            raise KernelArgumentError(f"{value!r}, not up to {self._most} integers: {error}") from None
        if len(integers) > self._most:
            raise KernelArgumentError(f"{len(integers)} numbers, but a {self} holds at most {self._most}")
        integers += [0] * (self._most - len(integers))
        if any(isinstance(number, SymInt) for number in integers):
            return SymbolicArgument(self.slots[0], tuple(integers))
        packed = np.zeros((), self.slots[0])
        packed[()] = tuple(integers)
        return packed


#: A ``ga_size``: an unsigned 64-bit integer.
SIZE = ScalarParam("uint64", "size")
#: A ``ga_ssize``: a signed 64-bit integer.
SSIZE = ScalarParam("int64", "ssize")
#: Up to 16 signed 64-bit integers, as ``long16 sizes``; the code reads ``sizes.s0`` to ``sizes.sF``.
SSIZES = SSizesParam("ssize16")
#: A device array, which is two parameters in the kernel's code: ``GLOBAL_MEM T *a, ga_size a_off``.
ARRAY = ArrayParam("*")
#: A buffer without an offset: ``GLOBAL_MEM T *a``.
BUFFER = BufferParam("buffer")
#: Local memory, given as a number of bytes: ``LOCAL_MEM_ARG T *a``.
LOCAL = LocalParam("local")

WORDS = {param.word: param for param in (ARRAY, BUFFER, LOCAL, SIZE, SSIZE, SSIZES)}


def as_param(param: Param | DTypeLike) -> Param:
    """Convert a dtype, or a word such as 'size', to a parameter; return a parameter unchanged."""
    if isinstance(param, Param):
        return param
    if isinstance(param, str) and param in WORDS:
        return WORDS[param]
    try:
        return _number(param if isinstance(param, str) else np.dtype(param))
    except TypeError as error:
        words = ", ".join(map(repr, WORDS))
        raise KernelArgumentError(
            f"{param!r} is not a parameter type of a kernel: use {words} or a dtype ({error})"
        ) from None


@functools.cache
def _number(dtype: str | AnyDtype) -> ScalarParam:
    """Return the parameter for numbers of a dtype; it is shared, because a graph has thousands of such parameters."""
    return ScalarParam(dtype)


_NO_OFFSET = np.uint64(0)


def offset_argument(offset: Any) -> np.uint64 | SymbolicArgument:
    """Return an array's offset in its buffer, as an OpenCL argument."""
    if isinstance(offset, SymInt):
        return SymbolicArgument(_OFFSET_DTYPE, (offset,))
    return np.uint64(offset) if offset else _NO_OFFSET


def _fits(number: int, dtype: AnyDtype) -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= number <= limits.max


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "AEIOUaeiou" else f"a {kind}"
