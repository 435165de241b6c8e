"""Computes small test values in Python: compiling a C module for each of a model's nodes would take minutes.

With ``config.compute_test_value``, Theano computes each node on creation, with a thunk of its own. PyMC3
enables that: a model of a hundred nodes started a hundred compilers before `theano.function` was called.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import theano
from theano.gof.graph import Apply, Variable
from theano.gof.op import PureOp
from theano.tensor.elemwise import Elemwise

from optdb.host.api.folding import MAX_PY_INPUTS

__all__ = ["is_quick_in_python"]

#: The maximum number of elements computed in Python; without a NumPy function for the op, each takes some 100 ns.
_ELEMENTS = 10_000
#: Modules of ops whose Python code calls NumPy or SciPy. Convolution and pooling are Python loops.
_MODULES = tuple(
    f"theano.{name}"
    for name in (
        *("tensor.basic", "tensor.blas", "tensor.elemwise", "tensor.extra_ops", "tensor.inplace", "tensor.nlinalg"),
        *("tensor.opt", "tensor.slinalg", "tensor.subtensor", "compile.ops", "scalar.basic"),
    )
)


def is_quick_in_python(node: Apply, storage_map: dict[Variable, list[Any]]) -> bool:
    """Return whether a node's Python code computes its test value sooner than compiling its C code would take.

    Parameters
    ----------
    node : Apply
        A node outside of any function.
    storage_map : dict
        The values of its inputs.
    """
    op = type(node.op)
    if theano.config.compute_test_value == "off" or op.__module__ not in _MODULES:
        return False
    if op.perform is PureOp.perform or (issubclass(op, Elemwise) and len(node.inputs) > MAX_PY_INPUTS):
        return False
    return sum(np.size(storage_map[var][0]) for var in node.inputs) <= _ELEMENTS
