"""Constant folding, in Python.

Theano compiles a node to fold it. This module calls ``Op.perform`` instead, and compiles only ops without ``perform``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from theano.gof.opt import copy_stack_trace
from theano.gof.utils import MethodNotDefined
from theano.tensor.elemwise import DimShuffle
from theano.tensor.opt import constant_folding, topo_constant_folding

from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, nodes_outside
from optdb.host.api.identity import numbers
from optdb.host.api.patching import Patch
from optdb.host.theano.vectorized.plug import by_perform

#: Maps an op and its input values to the output values. Several constants may share an array, because constants are
#: never written to.
_values: dict[Hashable, list[Any]] = {}
#: The maximum number of input elements for which a node's values are cached.
_SMALL = 8
#: The maximum number of input elements for which ``perform`` is faster than creating a whole-array function.
_FEW = 64

#: The maximum number of inputs of a NumPy ufunc; an op with more inputs has only C code.
MAX_PY_INPUTS = 31


def _transform(node: Apply) -> list[Constant] | bool:
    """Theano's rewriter ``constant_folding``, which other rewriters also call."""
    return fold_node(node) or False


PATCHES = [Patch(constant_folding, "transform", _transform, "constants are computed once, without a compiler")]


def forget() -> None:
    """Clear the cache of values."""
    _values.clear()


def is_folding_pass(rewriter: Any) -> bool:
    """Return whether a graph rewriter is Theano's constant-folding pass."""
    return rewriter is topo_constant_folding or (getattr(rewriter, "local_opt", None) is constant_folding)


def is_broadcast(node: Apply) -> bool:
    """Return whether `node` only permutes the axes of its input or adds axes."""
    return isinstance(node.op, DimShuffle)


def fold_node(node: Apply) -> list[Constant] | None:
    """Return constants for the outputs of `node` if its inputs are constants and its op allows folding; else None."""
    for var in node.inputs:
        if not isinstance(var, Constant):
            return None
    if not node.op.do_constant_folding(node):
        return None
    return [_constant_like(output, value) for output, value in zip(node.outputs, _value(node), strict=True)]


def _constant_like(output: Variable, value: Any) -> Constant:
    make_constant = getattr(output.type, "Constant", Constant)
    constant = make_constant(output.type, value)
    copy_stack_trace(output, constant)
    return constant


def _value(node: Apply) -> list[Any]:
    key = _key(node) if numbers.users else None
    if key is None:
        return _evaluate(node)
    cached = _values.get(key)
    if cached is None:
        cached = _values[key] = _evaluate(node)
    return cached


def _data(node: Apply) -> list[Any]:
    return [var.data for var in node.inputs if isinstance(var, Constant)]


def _key(node: Apply) -> Hashable | None:
    """Return the op and the input values if the inputs contain only a few numbers; None otherwise."""
    parts: list[Hashable] = [node.op]
    for data in _data(node):
        if type(data) is not np.ndarray or data.size > _SMALL or data.dtype.hasobject:
            return None
        parts.append((data.dtype.char, data.shape, data.tobytes()))
    if len(parts) == 1:
        return None
    try:
        hash(parts[0])
    except TypeError:  # unhashable ops are not cached
        return None
    return tuple(parts)


def _evaluate(node: Apply) -> list[Any]:
    if type(node.op) is DimShuffle:
        return [_shuffled(node)]
    impl = "py" if len(node.inputs) <= MAX_PY_INPUTS else None
    try:
        return _run_thunk(node, impl)
    except (MethodNotDefined, NotImplementedError):
        return _run_thunk(node, None)


def _shuffled(node: Apply) -> Any:
    """Compute a DimShuffle directly, because a thunk would create parameters for C code."""
    storage: list[Any] = [None]
    op: Any = node.op
    op.perform(node, _data(node), [storage], None)
    return storage[0]


def _run_thunk(node: Apply, impl: str | None) -> list[Any]:
    destroyed = {i for inputs in getattr(node.op, "destroy_map", {}).values() for i in inputs}
    storage_map: dict[Variable, list[Any]] = {
        # Copy data that the op overwrites, because all graphs that contain the constant share its data.
        var: [np.copy(data) if i in destroyed else data]
        for i, (var, data) in enumerate(zip(node.inputs, _data(node), strict=True))
    }
    compute_map = {var: [True] for var in node.inputs}
    for output in node.outputs:
        storage_map[output] = [None]
        compute_map[output] = [False]
    with by_perform() if _is_small(node) else nullcontext():
        thunk = node.op.make_thunk(node, storage_map, compute_map, no_recycling=[], impl=impl)
    thunk()
    return [storage_map[output][0] for output in node.outputs]


def _is_small(node: Apply) -> bool:
    return all(getattr(data, "size", 1) <= _FEW for data in _data(node))


def fold_replacements(fgraph: FunctionGraph, replacements: Sequence[Variable]) -> list[Variable]:
    """Fold the constant parts of variables that are about to enter `fgraph`.

    The function visits only nodes outside `fgraph`, operands first, and changes these nodes' inputs in place.
    """
    folded: dict[Variable, Constant] = {}
    for node in nodes_outside(fgraph, replacements):
        inputs = node.inputs
        for i, var in enumerate(inputs):
            if var in folded:
                inputs[i] = folded[var]
        try:
            constants = fold_node(node)
        except Exception:  # an op's perform may raise any exception
            # The node enters the graph unfolded, and the engine's visit reports the error.
            continue
        if constants is not None:
            folded.update(zip(node.outputs, constants, strict=True))
    if not folded:
        return list(replacements)
    tell_shapes(fgraph, folded.values())
    return [folded.get(var, var) for var in replacements]


def tell_shapes(fgraph: FunctionGraph, constants: Any) -> None:
    """Add the shapes of folded constants to the shape feature, which gets no import events for constants."""
    shape_feature = getattr(fgraph, "shape_feature", None)
    if shape_feature is None:
        return
    for constant in constants:
        shape_feature.init_r(constant)
