"""Entries of the kernel tables; an entry selects a kernel for an op's dtypes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


def common_in_c(dtype: str, other: str) -> str:
    """Return the dtype to which C's usual arithmetic conversions convert two numbers."""
    if dtype == other:
        return dtype
    kinds = {np.dtype(dtype).kind, np.dtype(other).kind}
    if kinds <= {*"biu"}:
        promoted = {promoted_in_c(dtype), promoted_in_c(other)}
        return next(name for name in ("uint64", "int64", "uint32", "int32") if name in promoted)
    if "c" in kinds or "float16" in (dtype, other):
        return np.promote_types(dtype, other).name  # there is no C code for these dtypes
    # An integer of any size is converted to the float's dtype.
    return max((name for name in (dtype, other) if is_real_float(name)), key=lambda name: np.dtype(name).itemsize)


def promoted_in_c(dtype: str) -> str:
    """Return the dtype after C's integer promotion."""
    kind_and_size = np.dtype(dtype)
    return "int32" if kind_and_size.kind in "biu" and kind_and_size.itemsize < 4 else dtype


def is_real_float(dtype: str) -> bool:
    """Return whether a dtype is a real floating-point type of any size."""
    return dtype.startswith("float")


def is_inexact(dtype: str) -> bool:
    """Return whether a dtype is a real or complex floating-point type of any size."""
    return dtype.startswith(("float", "complex"))


@dataclass(frozen=True)
class ArrayKernel:
    """A function that applies a scalar op to arrays, and its requirements."""

    function: Callable[..., Any]
    dtypes: tuple[str, ...]
    #: Whether the result may overwrite an operand, because the function reads each element before writing to it.
    in_place: bool = True
    #: Whether the function takes any number of arrays, which it combines from the left.
    folds: bool = False


@dataclass(frozen=True)
class ScalarDtypes:
    """A scalar op with the dtypes of its inputs and of its output."""

    op: Any
    inputs: tuple[str, ...]
    out: str

    @property
    def widest(self) -> str:
        """The dtype to which NumPy promotes all inputs."""
        return np.dtype(functools.reduce(np.promote_types, map(np.dtype, self.inputs))).name

    @property
    def common(self) -> str:
        """The dtype to which C converts all inputs."""
        return functools.reduce(common_in_c, self.inputs)


Entry = Callable[[ScalarDtypes], ArrayKernel]

ONES = {np.dtype(name): np.ones((), name) for name in ("float16", "float32", "float64", "complex64", "complex128")}


def element_by_element(signature: ScalarDtypes) -> ArrayKernel:
    """Return a kernel that calls the op's ``impl`` for each element."""
    impl = np.frompyfunc(signature.op.impl, len(signature.inputs), 1)

    def compute(*args: Any) -> None:
        args[-1][...] = impl(*args[:-1])

    return ArrayKernel(compute, signature.inputs, in_place=False)


def in_out_dtype(function: Callable[..., Any], in_place: bool = True) -> Entry:
    """Return an entry whose operands are converted to the dtype of the result."""
    return lambda signature: ArrayKernel(function, (signature.out,) * len(signature.inputs), in_place)


def in_own_dtypes(function: Callable[..., Any], in_place: bool = True) -> Entry:
    """Return an entry whose operands keep their dtypes."""
    return lambda signature: ArrayKernel(function, signature.inputs, in_place)


def in_c_order(ufunc: Callable[..., Any], entry: Entry) -> Entry:
    """Return an entry that combines operands of different dtypes with `ufunc`, from left to right, as C does.

    If the dtypes of intermediate results do not affect the result, `entry` selects the kernel.
    """

    def choose(signature: ScalarDtypes) -> ArrayKernel:
        partial = list(itertools.accumulate(map(promoted_in_c, signature.inputs), common_in_c))[1:]
        if all(is_as_good(dtype, signature.out) for dtype in partial):
            return entry(signature)

        def compute(*args: Any) -> None:
            value, *rest, out = args
            for operand, dtype in zip(rest, partial, strict=True):
                value = ufunc(value.astype(dtype), operand.astype(dtype))
            copy(value, out)

        return ArrayKernel(compute, signature.inputs, in_place=False)

    return choose


def is_as_good(dtype: str, out: str) -> bool:
    """Return whether sums, products and bitwise operations may be computed in `dtype`, and then converted to `out`."""
    if dtype == out or out == "bool" or out.startswith("complex"):
        return True
    dtypes = np.dtype(dtype), np.dtype(out)
    return all(d.kind in "iu" for d in dtypes) and dtypes[0].itemsize >= dtypes[1].itemsize


def in_common_dtype(function: Callable[..., Any]) -> Entry:
    """Return an entry whose operands are converted to a common dtype, as in C."""
    return lambda signature: ArrayKernel(function, (signature.common,) * len(signature.inputs), True)


def copy(x: Any, out: Any) -> None:
    """Copy `x` into `out`, converting as C does."""
    np.copyto(out, x, casting="unsafe")


def put_where(mask: Any, value: Any, out: Any) -> None:
    """Set the elements of `out` where a mask is true, converting as C does."""
    if mask.any():
        np.copyto(out, value, where=mask, casting="unsafe")
