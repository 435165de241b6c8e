"""Finds the kernel for a scalar op, and defines the kernels for casts and complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.scalar_kernels import arithmetic, entries, floats


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


_CONVERSIONS: dict[type, entries.Entry] = {
    scalars.Cast: entries.in_own_dtypes(entries.copy),
    scalars.Identity: entries.in_own_dtypes(entries.copy),
    scalars.Second: entries.in_own_dtypes(_copy_second),
    scalars.Real: entries.in_own_dtypes(_real),
    scalars.Imag: entries.in_own_dtypes(_imag),
    scalars.Angle: entries.in_own_dtypes(_angle, in_place=False),
    scalars.Complex: entries.in_own_dtypes(_complex, in_place=False),
    scalars.ComplexFromPolar: entries.in_own_dtypes(_from_polar, in_place=False),
}


#: Two tables: entries for ops whose operands are converted to the dtype of the result, and entries for ops with other
#: conversion rules.
_CONVERTING = {scalars.Conj: entries.in_out_dtype(np.conjugate), **arithmetic.CONVERTING, **floats.CONVERTING}
_SPECIAL = {**_CONVERSIONS, **arithmetic.SPECIAL}


def kernel_of(node: Apply) -> entries.ArrayKernel:
    """Return the kernel for a scalar op's node; the kernel for an unknown op calls ``impl`` element by element."""
    dtypes = tuple(var.type.dtype for var in node.inputs)
    signature = entries.ScalarDtypes(node.op, dtypes, node.outputs[0].type.dtype)
    op_type = type(node.op)
    if "impl" in vars(node.op):
        return entries.element_by_element(signature)
    if op_type in _SPECIAL:
        return _SPECIAL[op_type](signature)
    if op_type in _CONVERTING:
        return _in_widest_dtype(signature, _CONVERTING[op_type])
    return entries.element_by_element(signature)


def known_ops() -> Sequence[type]:
    """Return the classes of the scalar ops that have a kernel."""
    return (*_SPECIAL, *_CONVERTING)


def _in_widest_dtype(signature: entries.ScalarDtypes, entry: entries.Entry) -> entries.ArrayKernel:
    """Return the kernel for a result that may be narrower than the operands, as for a float plus an integer."""
    out = signature.out
    wide = np.promote_types(signature.widest, out).name if signature.inputs else out
    kernel = entry(replace(signature, out=wide))
    if wide == out:
        return kernel

    def compute(*args: Any) -> None:
        result = np.empty(args[-1].shape, wide)
        kernel.function(*args[:-1], result)
        entries.copy(result, args[-1])

    return entries.ArrayKernel(compute, kernel.dtypes, in_place=False)
