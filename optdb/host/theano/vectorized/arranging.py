"""Views with other axes: few array operations, and no parameters made for each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from theano.tensor.elemwise import DimShuffle

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes

__all__: list[str] = []


#: The maximum number of axes in all NumPy versions. `perform` raises the error for more.
_MOST_AXES = 32


@computes(DimShuffle)
def _make(node: Apply) -> Compute | None:
    op = node.op
    assert isinstance(op, DimShuffle)
    if len(op.new_order) > _MOST_AXES:
        return None
    order, kept = [*op.shuffle, *op.drop], len(op.shuffle)
    is_sorted = order == sorted(order)
    new_axes = tuple(None if axis == "x" else slice(None) for axis in op.new_order)

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        array = inputs[0] if is_sorted else inputs[0].transpose(order)
        if array.ndim != kept:
            array = array.reshape(array.shape[:kept])  # raises where a dropped axis has more than one element
        storage[0][0] = array[new_axes] if new_axes else array

    return compute
