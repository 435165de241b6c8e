"""Reshapes to the shape that an array has anyway.

Theano removes a reshape to ``[x.shape[0], ..., x.shape[-1]]`` as long as these stand there. In topological order, they
have become what they are computed of when the reshape's turn comes. So its lengths are compared with the inferred ones,
of which those that are computed of constants alone are worked out: they are in no graph in which they would be folded.
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
    """Tell whether an inferred length is certainly the one that is asked for."""
    if length is inferred:
        return True
    if not isinstance(length, Constant):
        return False
    try:
        return bool(get_scalar_constant_value(inferred) == length.data)
    except NotScalarConstantError:
        return False
