"""Finds the kernel of a scalar op in the tables of all families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.scalar_kernels import arithmetic, choices, complexes, copies, floats
from optdb.host.theano.vectorized.scalar_kernels.entries import (
    ArrayKernel,
    Entry,
    ScalarDtypes,
    copy,
    element_by_element,
)

_CONVERTING = {**arithmetic.CONVERTING, **choices.CONVERTING, **floats.CONVERTING, **complexes.CONVERTING}
_SPECIAL = {**copies.SPECIAL, **arithmetic.SPECIAL, **choices.SPECIAL, **complexes.SPECIAL}


def kernel_of(node: Apply) -> ArrayKernel:
    """Return the kernel of a scalar op's node; for unknown ops, one that calls ``impl`` element by element."""
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
