"""The type of arrays on an OpenCL device.

A value is a ``pyopencl.array.Array`` that uses the queue of the type's context and may have any layout. The host's own
array type decides which casts from NumPy arrays and numbers are allowed. The type stores only the context's name, for
pickling.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from optdb.host.api.variables import TensorType, Type, Variable, patternbroadcast
from optdb.opencl.registry import contexts, get_context
from optdb.runtime import arrays
from optdb.runtime.context import Context
from optdb.runtime.sizes import as_int


class UnsupportedDtype(TypeError):
    """Raised if a device does not support arrays of a dtype, or cannot compute with them."""


#: Maps constructor arguments to types, which are cached for the lifetime of their context.
_made: weakref.WeakKeyDictionary[Context, dict[tuple, OpenCLArrayType]] = weakref.WeakKeyDictionary()


def opencl_type(dtype: str, broadcastable: tuple[bool, ...], context_name: Hashable) -> OpenCLArrayType:
    """Return the type of arrays in a context; the same arguments return the same object."""
    made = _made.setdefault(get_context(context_name), {})
    key = (dtype, broadcastable, context_name)
    if key not in made:
        made[key] = OpenCLArrayType(dtype, broadcastable, context_name)
    return made[key]


#: This object has the attribute `skips_zeros` in a thread that is running a loop.
_local = threading.local()


@contextmanager
def without_zeros() -> Iterator[None]:
    """Leave arrays of zeros uninitialized in a block that runs a Scan, because the Scan writes all elements."""
    outer = getattr(_local, "skips_zeros", False)
    _local.skips_zeros = True
    try:
        yield
    finally:
        _local.skips_zeros = outer


class OpenCLArrayType(Type):
    """The type of arrays in a named OpenCL context, or in the default context if no name is given.

    Raises ContextNotDefined if there is no such context, and UnsupportedDtype if the device does not support the dtype.
    """

    SharedVariable: ClassVar[type[Variable]]

    def __init__(
        self, dtype: Any, broadcastable: Iterable[bool], context_name: Hashable = None, name: str | None = None
    ) -> None:
        self.host_type = TensorType(dtype, broadcastable)
        self.dtype = self.host_type.dtype
        self.broadcastable = self.host_type.broadcastable
        self.context_name = contexts.resolve(context_name)
        self.name = name
        self.numpy_dtype = self.host_type.numpy_dtype
        reason = self.context.unsupported_reason(self.dtype)
        if reason is not None:
            raise UnsupportedDtype(
                f"{self.context_name} cannot take arrays of {self.dtype}: {reason}. "
                "Cast to another dtype, or leave them on the host"
            )

    @property
    def ndim(self) -> int:
        return len(self.broadcastable)

    @property
    def context(self) -> Context:
        return get_context(self.context_name)

    def clone(
        self, dtype: Any = None, broadcastable: Iterable[bool] | None = None, context_name: Hashable = None
    ) -> OpenCLArrayType:
        return type(self)(
            self.dtype if dtype is None else dtype,
            self.broadcastable if broadcastable is None else broadcastable,
            self.context_name if context_name is None else context_name,
            name=self.name,
        )

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and self.dtype == other.dtype
            and self.broadcastable == other.broadcastable
            and self.context_name == other.context_name
        )

    def __hash__(self) -> int:
        return hash((type(self), self.dtype, self.broadcastable, self.context_name))

    def filter(self, data: Any, strict: bool = False, allow_downcast: bool | None = None) -> arrays.Array:
        """Return a value of this type for a device array, a NumPy array, or an object that NumPy converts to an array.

        If `strict` is set, only a value of this type is accepted. `allow_downcast` controls whether the conversion may
        lose precision; if it is None, only Python floats may. Raises TypeError if the conversion is not allowed.
        """
        if not isinstance(data, arrays.Array):
            if strict:
                raise TypeError(f"{self} expected an array on the device, got {type(data).__name__}")
            return arrays.from_host(self.context, self.host_type.filter(data, allow_downcast=allow_downcast))
        context = self.context
        # Fast path: this method runs for each update in each function call.
        if type(data) is arrays.DeviceArray and data.queue is context.queue and data.dtype is self.numpy_dtype:
            self._check_shape(data.shape)
            return data
        if strict and not (data.dtype == self.numpy_dtype and data.queue == context.queue):
            device = data.queue.device.name.strip() if data.queue is not None else "no queue"
            got = f"{data.dtype} on another queue ({device})"
            raise TypeError(f"{self} expected {self.dtype} on the queue of {self.context_name}, got {got}")
        if data.dtype == self.numpy_dtype and data.context == context.cl_context:
            self._check_shape(data.shape)
            return data if strict else arrays.adopt(context, data)
        if data.queue is None:
            raise TypeError("an array without a queue cannot be read; use array.with_queue(queue)")
        on_host = arrays.to_host(data)
        return arrays.from_host(context, self.host_type.filter(on_host, allow_downcast=allow_downcast))

    def own(self, data: Any, borrow: bool = False, allow_downcast: bool | None = None) -> arrays.Array:
        """Return a value of this type that shares no memory with `data`, unless `borrow` is set."""
        value = self.filter(data, allow_downcast=allow_downcast)
        if borrow or not self.may_share_memory(value, data):
            return value
        return arrays.copy(value)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) != self.ndim:
            raise TypeError(f"{self} expected {self.ndim} dimension(s), got {len(shape)}, of shape {shape}")
        for axis, broadcastable in enumerate(self.broadcastable):
            if broadcastable and shape[axis] != 1:
                raise TypeError(f"{self} expected length 1 at axis {axis}, got the shape {shape}")

    def value_zeros(self, shape: tuple[int, ...]) -> arrays.Array:
        """Return an array of zeros of this type, or an uninitialized array within `without_zeros`."""
        new = arrays.empty(self.context, tuple(map(as_int, shape)), self.dtype)
        return new if getattr(_local, "skips_zeros", False) else arrays.fill_zeros(new)

    def value_validity_msg(self, data: Any) -> str:
        try:
            self.filter(data, strict=True)
        except TypeError as error:
            return str(error)
        return "value is valid"

    def filter_variable(self, other: Any, allow_convert: bool = True) -> Variable:
        """Convert another variable, or a value, to a variable of this type, moving it to this type's context.

        Raises TypeError if the dtype or the number of dimensions differs from this type's.
        """
        if not isinstance(other, Variable):
            other = self.make_constant(other)
        if other.type == self:
            return other
        if isinstance(other.type, (TensorType, OpenCLArrayType)) and other.type.dtype == self.dtype:
            moved = other.transfer(self.context_name)
            if moved.type == self:
                return moved
            converted = self.convert_variable(moved) if allow_convert else None
            if converted is not None:
                return converted
        raise TypeError(f"{other}, of type {other.type}, is not compatible with {self}; convert it first")

    def convert_variable(self, var: Variable) -> Variable | None:
        """Convert `var` to this type if that only makes some axes non-broadcastable; return None otherwise."""
        other = var.type
        if (
            type(self) is not type(other)
            or (self.dtype, self.ndim, self.context_name) != (other.dtype, other.ndim, other.context_name)
            or any(
                broadcastable and not other_broadcastable
                for broadcastable, other_broadcastable in zip(self.broadcastable, other.broadcastable)
            )
        ):
            return None
        return patternbroadcast(var, self.broadcastable)

    @staticmethod
    def values_eq(a: Any, b: Any, force_same_dtype: bool = True) -> bool:
        """Return whether two values are equal; NaN is considered equal to NaN."""
        if a.shape != b.shape or (force_same_dtype and a.dtype != b.dtype):
            return False
        on_host_a, on_host_b = arrays.to_host(a), arrays.to_host(b)
        # Do not use the host's own comparison, which treats all numbers as equal if there is a NaN.
        return bool(np.all((on_host_a == on_host_b) | (np.isnan(on_host_a) & np.isnan(on_host_b))))

    @staticmethod
    def values_eq_approx(a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
        """Return whether two values are equal within the host's tolerances; see TensorType."""
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(TensorType.values_eq_approx(arrays.to_host(a), arrays.to_host(b), *args, **kwargs))

    @staticmethod
    def may_share_memory(a: Any, b: Any) -> bool:
        """Return whether changing one value may change the other."""
        if not isinstance(a, arrays.Array) or not isinstance(b, arrays.Array):
            return False
        return arrays.may_share_memory(a, b)

    def get_shape_info(self, obj: arrays.Array) -> tuple[int, ...]:
        return obj.shape

    def get_size(self, shape_info: tuple[int, ...]) -> int:
        return int(np.prod(shape_info, dtype=np.int64)) * self.numpy_dtype.itemsize

    def __str__(self) -> str:
        if self.name:
            return self.name
        shape = str(self.host_type).removeprefix("TensorType")
        return f"{type(self).__name__}<{self.context_name}>{shape}"

    __repr__ = __str__
