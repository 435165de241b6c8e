"""Which inputs an elementwise op of PyTensor may overwrite: those with the shape and dtype of an output.

PyTensor requires equal types, but types of arrays of the same shape may differ in the lengths that they declare. An
axis is broadcast only if its type declares the length 1.
"""

from __future__ import annotations

from collections.abc import Collection

from pytensor.graph.destroyhandler import inplace_candidates
from pytensor.tensor.rewriting.elemwise import InplaceElemwiseOptimizer

from optdb.host.api.graph import Apply, FunctionGraph, Variable
from optdb.host.api.patching import Patch


def _pairs_to_try(
    self: InplaceElemwiseOptimizer, fgraph: FunctionGraph, node: Apply, protected_inputs: Collection[Variable]
) -> list[tuple[tuple[int, Variable], tuple[int, Variable]]]:
    """Return pairs of an output and an input that it may overwrite: PyTensor's ``filter_candidate_pairs``."""
    candidates = inplace_candidates(fgraph, node.inputs, protected_inputs=protected_inputs)
    numbered = [(node.inputs.index(inp), inp) for inp in candidates]
    pairs = [((i, out), at) for i, out in enumerate(node.outputs) for at in numbered if _have_one_shape(at[1], out)]
    return sorted(pairs, key=lambda pair: pair[0][1].type != pair[1][1].type)


def _have_one_shape(inp: Variable, out: Variable) -> bool:
    """Return whether the arrays of an input and an output of an elementwise op have the same shape and dtype."""
    if inp.type == out.type:
        return True
    return (
        type(inp.type) is type(out.type)
        and inp.type.dtype == out.type.dtype
        and inp.type.broadcastable == out.type.broadcastable
    )


PATCHES = [
    Patch(
        InplaceElemwiseOptimizer,
        "filter_candidate_pairs",
        _pairs_to_try,
        "arrays of the same shape may have types with different static lengths",
    )
]
