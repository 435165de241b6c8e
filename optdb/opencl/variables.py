"""Variables, constants and shared variables whose values are on an OpenCL device.

If a host op is applied to a device variable, the value is first transferred to the host; a lifter can later replace the
host op with a device op. ``theano.shared(value, target='dev0')`` creates a shared variable on a device.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from optdb.host.api.graph import Constant, Variable
from optdb.host.api.variables import SharedVariable, TensorConstantSignature, TensorOperators, shared_constructor
from optdb.numpy_types import HostArray
from optdb.opencl.registry import contexts
from optdb.opencl.transfers import as_host_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime import arrays


class _Operators(TensorOperators, Variable):
    """Arithmetic operators, indexing and methods, all of which build host ops."""

    type: OpenCLArrayType

    def _as_TensorVariable(self) -> Variable:  # noqa: N802 (the host's name)
        return as_host_variable(self)


class OpenCLVariable(_Operators):
    """A variable whose value is on a device."""


class OpenCLConstant(_Operators, Constant):
    """A constant on a device; its data may be on a device or on the host."""

    def __init__(self, type: OpenCLArrayType, data: Any, name: str | None = None) -> None:
        super().__init__(type, data, name)
        # The common value of all elements, or None if the elements differ; the host's rewriters read this value.
        self.tag.unique_value = _unique(self.on_host)

    @functools.cached_property
    def on_host(self) -> HostArray:
        """The value on the host, cached because constants are compared by value when they are merged."""
        value = arrays.to_host(self.data)
        value.flags.writeable = False
        return value

    def signature(self) -> tuple[Any, ...]:
        return TensorConstantSignature((self.type, self.on_host))

    def equals(self, other: object) -> bool:
        return isinstance(other, OpenCLConstant) and self.signature() == other.signature()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("on_host", None)
        return state

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        value = str(self.on_host)
        if self.tag.unique_value is not None and self.data.shape:
            value = f"{self.data.shape} of {self.tag.unique_value}"
        if len(value) > 20:
            value = f"{value[:10]}..{value[-10:]}"
        return f"OpenCLConstant<{self.type.context_name}>{{{value}}}"


def _unique(value: HostArray) -> Any:
    if not value.size:
        return None
    first = value.flat[0]
    return first if (value == first).all() else None


class OpenCLSharedVariable(_Operators, SharedVariable):
    """A shared variable whose value stays on a device."""

    def get_value(self, borrow: bool = False, return_internal_type: bool = False) -> Any:
        """Return the value on the host, or the device array if `return_internal_type` is set.

        With `borrow`, the device array is returned without a copy. A host array is always returned as a copy.
        """
        value = self.container.value
        if not return_internal_type:
            return arrays.to_host(value)
        return value if borrow else arrays.copy(value)

    def set_value(self, new_value: Any, borrow: bool = False) -> None:
        """Set the value to an array on a device or on the host.

        With `borrow`, an array on the device is used without a copy. A host array is copied into the current device
        array if both have the same shape.
        """
        if isinstance(new_value, arrays.Array):
            self.container.value = self.type.own(new_value, borrow, self.container.allow_downcast)
            return
        # Apply the host's checks: `strict` requires the exact dtype, but does not require a device array.
        value = self.type.host_type.filter(new_value, self.container.strict, self.container.allow_downcast)
        self.container.value = arrays.from_host(self.type.context, value, self.container.value)

    def zero(self, borrow: bool = False) -> None:
        self.set_value(np.zeros(self.container.value.shape, self.type.dtype))


OpenCLArrayType.Variable = OpenCLVariable
OpenCLArrayType.Constant = OpenCLConstant
OpenCLArrayType.SharedVariable = OpenCLSharedVariable


_NOT_GIVEN = object()


@shared_constructor
def opencl_shared(
    value: Any,
    name: str | None = None,
    strict: bool = False,
    allow_downcast: bool | None = None,
    borrow: bool = False,
    broadcastable: Iterable[bool] | None = None,
    target: Hashable = _NOT_GIVEN,
) -> OpenCLSharedVariable:
    """Create a shared variable on a device; Theano calls this for ``theano.shared``.

    The value is an array on a device or on the host, or a number. `target` names a context; None selects the default
    context. Without a target, numbers stay on the host, and arrays are placed in the default context if the flag
    optdb.device sets one and its device supports them. `borrow` allows an array on the device to be used without a
    copy. Raises TypeError if the value does not belong on the device, so that Theano tries other constructors;
    ContextNotDefined if there is no such context; and ValueError if the context does not support the value.
    """
    if target == "cpu":
        raise TypeError("for the host")
    is_given = target is not _NOT_GIVEN
    target = contexts.resolve(target) if is_given else _context_of(value)
    try:
        if isinstance(value, (np.generic, bool, int, float, complex)):
            value = np.asarray(value)
        if not isinstance(value, (np.ndarray, arrays.Array)):
            raise TypeError(f"expected an array or a number, got {type(value).__name__}")
        kind = OpenCLArrayType(value.dtype, (False,) * value.ndim if broadcastable is None else broadcastable, target)
        on_device = kind.own(value, borrow, allow_downcast)
        return OpenCLSharedVariable(name=name, type=kind, value=on_device, strict=strict, allow_downcast=allow_downcast)
    except TypeError as error:
        if not is_given:
            raise
        # On a TypeError, Theano would try other constructors, and the user would not see this error's message.
        raise ValueError(f"theano.shared(target={target!r}): {error}") from error


def _context_of(value: Any) -> Hashable:
    if isinstance(value, arrays.Array):
        here = contexts.name_of(lambda context: context.queue == value.queue)
        if here is None:
            raise TypeError("an array of a context that has no name")
        return here
    if not isinstance(value, np.ndarray) or value.ndim == 0 or contexts.default is None:
        raise TypeError("for the host, unless a target is given")
    reason = contexts.get().unsupported_reason(value.dtype)
    if reason is not None:
        raise TypeError(reason)
    return contexts.default
