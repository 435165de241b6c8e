"""A faster ``merge_two_slices`` for slices with known directions.

Theano builds the graphs for all four combinations of forward and backward slices, and then removes three of them.
"""

from __future__ import annotations

from typing import Any

from theano import tensor as tt
from theano.tensor import opt
from theano.tensor.subtensor import get_canonical_form_slice

from optdb.host.api.graph import Variable
from optdb.host.api.patching import Patch

_stock_merge_two_slices = opt.merge_two_slices

_REWRITERS = [
    opt.local_abs_merge,
    opt.local_mul_switch_sink,
    opt.local_upcast_elemwise_constant_inputs,
    opt.local_useless_switch,
    opt.constant_folding,
]


def merge_two_slices(slice1: slice, len1: Any, slice2: Any, len2: Any) -> slice | Variable:
    """Return one slice or index that replaces `slice1`, on an axis of length `len1`, followed by `slice2`."""
    if type(slice1) is not slice or type(slice2) is not slice:
        return _stock_merge_two_slices(slice1, len1, slice2, len2)
    first, direction1 = get_canonical_form_slice(slice1, len1)
    second, direction2 = get_canonical_form_slice(slice2, len2)
    if not isinstance(direction1, int) or not isinstance(direction2, int):
        return _stock_merge_two_slices(slice1, len1, slice2, len2)
    length = second.stop - second.start
    start, stop = _ends(first, second, length, len1, direction1, direction2)
    step = tt.as_tensor_variable(first.step * second.step * direction1 * direction2)
    parts = [tt.switch(tt.le(length, 0), 0, start), tt.switch(tt.le(length, 0), 0, stop), step]
    for _ in range(2):
        parts = [opt.pre_greedy_local_optimizer(_REWRITERS, part) for part in parts]
    return slice(*opt.pre_constant_merge(parts))


def _ends(
    first: slice, second: slice, length: Any, len1: Any, direction1: int, direction2: int
) -> tuple[Variable, Variable]:
    """Return the start and end of the merged slice, from Theano's formulas for the two slices' directions."""
    if direction1 > 0 and direction2 > 0:
        return (
            tt.minimum(first.start + second.start * first.step, first.stop),
            tt.minimum(first.start + second.stop * first.step, first.stop),
        )
    if direction1 > 0:
        start = tt.minimum(first.start + (second.stop - 1) * first.step, first.stop)
        stop = first.start + (second.start - 1) * first.step
        return tt.maximum(start, 0), _before_the_front(stop, length, len1, tt.minimum(stop, first.stop))
    if direction2 > 0:
        stop = first.stop - second.stop * first.step - 1
        return (
            tt.maximum(first.start, first.stop - second.start * first.step - 1),
            _before_the_front(stop, length, len1, tt.maximum(first.start - 1, stop)),
        )
    return (
        tt.maximum(first.start, (first.stop - 1) - (second.stop - 1) * first.step),
        tt.maximum(first.start, first.stop - second.start * first.step),
    )


def _before_the_front(stop: Any, length: Any, len1: Any, otherwise: Variable) -> Variable:
    """Return the end of a backward slice; a negative `stop` is replaced, since it would count from the axis's end."""
    return tt.switch(tt.and_(tt.lt(stop, 0), tt.gt(length, 0)), -len1 - 1, otherwise)


PATCHES = [
    Patch(
        opt,
        "merge_two_slices",
        merge_two_slices,
        "only the graph of the slice's direction is built, instead of all four",
    )
]
