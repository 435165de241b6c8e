"""Removes reshapes to the shape that an array has already.

Theano removes a reshape to ``[x.shape[0], ..., x.shape[-1]]`` while these lengths are in the graph. In topological
order, other rewriters replace the lengths before they reach the reshape. So the rule compares its lengths with the
inferred ones. Inferred lengths are in no graph that would fold them, so the rule folds those of constants alone.
"""

from __future__ import annotations

from optdb.host.graph import Apply, Constant, FunctionGraph, Variable
from optdb.host.ops import MakeVector, Reshape
from optdb.host.tensor import NotScalarConstantError, get_scalar_constant_value
from optdb.topo.db import ENGINE_TAG, register_topo


@register_topo(ENGINE_TAG, tracks=[Reshape])
def local_reshape_to_own_shape(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Remove a reshape to lengths that are those of the input."""
    x, wanted = node.inputs
    feature = getattr(fgraph, "shape_feature", None)
    if feature is None or x.type != node.outputs[0].type:
        return None
    if wanted.owner is None or not isinstance(wanted.owner.op, MakeVector):
        return None
    lengths = enumerate(wanted.owner.inputs)
    return [x] if all(_is_length(length, feature.get_shape(x, axis)) for axis, length in lengths) else None


def _is_length(length: Variable, inferred: Variable) -> bool:
    """Tell whether an inferred length is provably equal to `length`."""
    if length is inferred:
        return True
    if not isinstance(length, Constant):
        return False
    try:
        return bool(get_scalar_constant_value(inferred) == length.data)
    except NotScalarConstantError:
        return False
