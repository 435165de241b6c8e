"""Narrows graphs to single precision, for devices without double precision.

Even with floatX=float32, graphs have float64 variables, for example quotients of integers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Cast, float32
from pytensor.tensor.basic import cast, constant
from pytensor.tensor.elemwise import Elemwise

from optdb.pytensor.tracing import DtypeNotOnDevice


def _is_double(variable: Variable) -> bool:
    return getattr(variable.type, "dtype", None) == "float64"


def narrowed(fgraph: FunctionGraph, reason: str) -> FunctionGraph:
    """Return a graph with the same inputs that uses float32 instead of float64 wherever nodes allow it.

    If an input is float64, raise DtypeNotOnDevice with `reason`, which says why the device has no float64.
    """
    double = ", ".join(str(variable) for variable in fgraph.inputs if _is_double(variable))
    if double:
        raise DtypeNotOnDevice(f"float64 inputs: {double}; but {reason}; the cure: convert them to float32")
    outputs = _narrowed(fgraph.inputs, fgraph.outputs, fgraph.inputs)
    return FunctionGraph(fgraph.inputs, outputs, clone=False, update_mapping=fgraph.update_mapping)


def _narrowed(inputs: Sequence[Variable], outputs: Sequence[Variable], given: Sequence[Variable]) -> list[Variable]:
    """Return the narrowed outputs, computed from the given variables instead of the inputs."""
    known = dict(zip(inputs, given, strict=True))

    def value(variable: Variable) -> Variable:
        if variable not in known and isinstance(variable, Constant):
            is_double = _is_double(variable)
            known[variable] = constant(np.asarray(variable.data, "float32")) if is_double else variable
        return known[variable]

    for node in io_toposort(inputs, outputs):
        known.update(zip(node.outputs, _outputs(node, [value(x) for x in node.inputs]), strict=True))
    return [value(variable) for variable in outputs]


def _outputs(node: Apply, inputs: list[Variable]) -> list[Variable]:
    if isinstance(node.op, OpFromGraph):
        inner = node.op.fgraph
        return _narrowed(inner.inputs, inner.outputs, inputs)
    if not any(map(_is_double, (*node.inputs, *node.outputs))):
        made = Apply(node.op, inputs, [out.type(name=out.name) for out in node.outputs])
        return list(made.outputs)
    op = _narrowed_op(node.op)
    made = op.make_node(*inputs)
    if any(map(_is_double, made.outputs)):
        made = op.make_node(*[cast(x, "float32") if x.type.dtype[0] in "iu" else x for x in inputs])
    return list(made.outputs)


def _narrowed_op(op: Any) -> Any:
    """Return the op with float32 in place of each dtype that is set to float64."""
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast):
        return Elemwise(_narrowed_op(op.scalar_op))
    if isinstance(op, Cast):
        return Cast(float32, name="Cast{float32}") if op.o_type.dtype == "float64" else op
    fixed = {name: "float32" for name in ("dtype", "acc_dtype") if getattr(op, name, None) == "float64"}
    if not fixed:
        return op
    op = copy.copy(op)
    vars(op).update(fixed)
    return op
