"""Finds the kernel of a scalar op in the tables of all families; defines the kernels of casts and complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.scalar_kernels import arithmetic, floats
from optdb.host.theano.vectorized.scalar_kernels.entries import (
    ArrayKernel,
    Entry,
    ScalarDtypes,
    copy,
    element_by_element,
    in_out_dtype,
    in_own_dtypes,
)


def _copy_second(x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y, casting="unsafe")


def _real(x: Any, out: Any) -> None:
    np.copyto(out, x.real)


def _imag(x: Any, out: Any) -> None:
    np.copyto(out, x.imag)


def _angle(x: Any, out: Any) -> None:
    out[...] = np.angle(x)


def _complex(x: Any, y: Any, out: Any) -> None:
    real, imag = x.copy(), y.copy()
    out.real = real
    out.imag = imag


def _from_polar(radius: Any, theta: Any, out: Any) -> None:
    if np.any(radius < 0):
        raise ValueError("polar radius must be non-negative", radius)
    real, imag = radius * np.cos(theta), radius * np.sin(theta)
    out.real = real
    out.imag = imag


_CONVERSIONS: dict[type, Entry] = {
    scalars.Cast: in_own_dtypes(copy),
    scalars.Identity: in_own_dtypes(copy),
    scalars.Second: in_own_dtypes(_copy_second),
    scalars.Real: in_own_dtypes(_real),
    scalars.Imag: in_own_dtypes(_imag),
    scalars.Angle: in_own_dtypes(_angle, in_place=False),
    scalars.Complex: in_own_dtypes(_complex, in_place=False),
    scalars.ComplexFromPolar: in_own_dtypes(_from_polar, in_place=False),
}


#: Entries of ops whose operands are converted to the dtype of the result, and of ops with other conversion rules.
_CONVERTING = {
    scalars.Conj: in_out_dtype(np.conjugate),
    **arithmetic.CONVERTING,
    **floats.CONVERTING,
}
_SPECIAL = {**_CONVERSIONS, **arithmetic.SPECIAL}


def kernel_of(node: Apply) -> ArrayKernel:
    """Return the kernel of a scalar op's node; for unknown ops, the kernel calls ``impl`` element by element."""
    dtypes = tuple(var.type.dtype for var in node.inputs)
    signature = ScalarDtypes(node.op, dtypes, node.outputs[0].type.dtype)
    op_type = type(node.op)
    if "impl" in vars(node.op):
        return element_by_element(signature)
    if op_type in _SPECIAL:
        return _SPECIAL[op_type](signature)
    if op_type in _CONVERTING:
        return _in_widest_dtype(signature, _CONVERTING[op_type])
    return element_by_element(signature)


def known_ops() -> Sequence[type]:
    """Return the classes of the scalar ops that have a kernel."""
    return (*_SPECIAL, *_CONVERTING)


def _in_widest_dtype(signature: ScalarDtypes, entry: Entry) -> ArrayKernel:
    """Return the kernel for a result that may be narrower than the operands, as when adding a float to integers."""
    out = signature.out
    wide = np.promote_types(signature.widest, out).name if signature.inputs else out
    kernel = entry(replace(signature, out=wide))
    if wide == out:
        return kernel

    def compute(*args: Any) -> None:
        result = np.empty(args[-1].shape, wide)
        kernel.function(*args[:-1], result)
        copy(result, args[-1])

    return ArrayKernel(compute, kernel.dtypes, in_place=False)
