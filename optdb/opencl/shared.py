"""``theano.shared(value, target='dev0')``: shared variables on a device.

If there is no target, arrays are placed in the default context, provided that the flag optdb.device sets one and the
device supports the arrays. Numbers stay on the host, like other small values that every op needs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from optdb.host.api.variables import shared_constructor
from optdb.opencl.registry import contexts
from optdb.opencl.type import OpenCLArrayType
from optdb.opencl.variables import OpenCLSharedVariable
from optdb.runtime import arrays

__all__ = ["opencl_shared"]

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

    Parameters
    ----------
    value : object
        An array on a device or on the host, or a number.
    name : str, optional
        The variable's name.
    strict, allow_downcast : bool
        Which conversions are allowed for later values; see `OpenCLArrayType.filter`.
    borrow : bool
        Whether an array on the device may be used without a copy.
    broadcastable : sequence of bool, optional
        For each axis, whether it always has length 1; by default, False for all axes.
    target : str, optional
        The name of the context; None selects the default context.

    Raises
    ------
    TypeError
        If the value does not belong on this device; Theano then tries other constructors.
    ContextNotDefined
        If there is no context of that name.
    ValueError
        If the context does not support the value.
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
        # On a TypeError, Theano would try other constructors and lose the reason.
        raise ValueError(f"theano.shared(target={target!r}): {error}") from error


def _context_of(value: Any) -> Hashable:
    """Return the context that holds a value, or the default context if no context holds it."""
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
