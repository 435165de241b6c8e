"""Large powers of two as repeated squares: x ** 1024 in ten multiplications.

Theano expands powers up to 512 in one step.  For larger exponents, the rule
here halves the exponent, and the engine applies it to each result until
Theano's own rule applies.
"""

from __future__ import annotations

import numpy as np

from optdb.host.api.graph import Apply, FunctionGraph, Variable
from optdb.host.api.tensor import (
    NotScalarConstantError,
    constant,
    copy_stack_trace,
    get_scalar_constant_value,
    pow,
    sqr,
)
from optdb.topo.db import ENGINE_TAG, register_topo

#: The largest exponent that Theano's local_pow_specialize_device expands.
MAX_THEANO_EXPONENT = 512
#: Each squaring doubles the relative error: for larger exponents, pow is more accurate.
MAX_EXPONENT = 1024


@register_topo(ENGINE_TAG, tracks=[pow])
def local_pow_to_sqr(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``x ** (2 * n)`` as ``sqr(x ** n)`` for large powers of two."""
    base, exponent = node.inputs
    if not all(exponent.type.broadcastable):
        return None
    try:
        value = get_scalar_constant_value(exponent)
    except NotScalarConstantError:
        return None
    if not MAX_THEANO_EXPONENT < value <= MAX_EXPONENT or int(value) & (int(value) - 1) or value != int(value):
        return None
    half = constant(np.full((1,) * exponent.type.ndim, int(value) // 2, dtype=exponent.type.dtype))
    root = pow(base, half)
    squared = sqr(root)
    if squared.type != node.outputs[0].type:
        return None
    copy_stack_trace(node.outputs[0], [root, squared])
    return [squared]
