"""Variables, constants and shared variables whose values are on an OpenCL device.

They support everything that the host's array variables support: a host op applied to one of them first transfers its
value from the device, until a lifter replaces the host op with a device op.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from optdb.host.api.graph import Constant, Variable
from optdb.host.api.variables import SharedVariable, TensorConstantSignature, TensorOperators
from optdb.numpy_types import HostArray
from optdb.opencl.transfers import as_host_variable, as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime import arrays

__all__ = ["OpenCLConstant", "OpenCLSharedVariable", "OpenCLVariable"]


class _Operators(TensorOperators, Variable):
    """Arithmetic, indexing and methods that build host ops."""

    type: OpenCLArrayType

    def _as_TensorVariable(self) -> Variable:  # noqa: N802 (the host's name)
        return as_host_variable(self)

    def _as_OpenCLVariable(self, context_name: Any) -> Variable:  # noqa: N802
        return as_opencl_variable(self, context_name)


class OpenCLVariable(_Operators):
    """A variable whose value is on a device."""


class OpenCLConstant(_Operators, Constant):
    """A constant on a device.

    Parameters
    ----------
    type : OpenCLArrayType
        The constant's type.
    data : object
        The constant's value, on a device or on the host.
    name : str, optional
        The constant's name.
    """

    def __init__(self, type: OpenCLArrayType, data: Any, name: str | None = None) -> None:
        super().__init__(type, data, name)
        # The common value of all elements, or None if the elements differ; the host's rewriters read it.
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
        """Return the value.

        Parameters
        ----------
        borrow : bool
            Whether the device array may be returned without a copy. Host arrays are always copies.
        return_internal_type : bool
            Whether to return the device array instead of a host array.
        """
        value = self.container.value
        if not return_internal_type:
            return arrays.to_host(value)
        return value if borrow else arrays.copy(value)

    def set_value(self, new_value: Any, borrow: bool = False) -> None:
        """Set the value.

        Parameters
        ----------
        new_value : object
            An array on a device or on the host. A host array is copied over the old value if their shapes are equal.
        borrow : bool
            Whether an array on the device may be used without a copy.
        """
        if isinstance(new_value, arrays.Array):
            self.container.value = self.type.own(new_value, borrow, self.container.allow_downcast)
            return
        # Apply the host's checks: `strict` requires the exact dtype, but not a device array.
        value = self.type.host_type.filter(new_value, self.container.strict, self.container.allow_downcast)
        self.container.value = arrays.from_host(self.type.context, value, self.container.value)

    def zero(self, borrow: bool = False) -> None:
        """Set all elements to 0."""
        self.set_value(np.zeros(self.container.value.shape, self.type.dtype))


OpenCLArrayType.Variable = OpenCLVariable
OpenCLArrayType.Constant = OpenCLConstant
OpenCLArrayType.SharedVariable = OpenCLSharedVariable
