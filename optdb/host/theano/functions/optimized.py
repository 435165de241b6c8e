"""Replaces ops that Theano's optimizer chose for the CPU with equivalent plain ops.

Devices only have counterparts of the plain ops. In a copy without in-place ops, the nodes can run in any topological
order, and no node overwrites a buffer that the copy shares with the original.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from theano.compile.ops import DeepCopyOp, ViewOp, deep_copy_op
from theano.gof.toolbox import History
from theano.sandbox.rng_mrg import mrg_uniform
from theano.tensor import as_tensor_variable, patternbroadcast
from theano.tensor.blas import Gemm, Gemv, Ger
from theano.tensor.blas_c import CGemv, CGer
from theano.tensor.blas_scipy import ScipyGer
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet.abstract_conv import (
    AbstractConv2d,
    AbstractConv2d_gradInputs,
    AbstractConv2d_gradWeights,
    AbstractConv3d,
    AbstractConv3d_gradInputs,
    AbstractConv3d_gradWeights,
)
from theano.tensor.nnet.blocksparse import SparseBlockGemv, SparseBlockOuter
from theano.tensor.nnet.conv import ConvOp
from theano.tensor.nnet.corr import CorrMM, CorrMM_gradInputs, CorrMM_gradWeights
from theano.tensor.nnet.corr3d import Corr3dMM, Corr3dMM_gradInputs, Corr3dMM_gradWeights
from theano.tensor.raw_random import RandomFunction
from theano.tensor.subtensor import AdvancedIncSubtensor1, IncSubtensor

from optdb.host.api.control_flow import Scan, scan_overwriting
from optdb.host.api.graph import Apply, FunctionGraph, Op, PureOp, Variable
from optdb.host.api.traces import copy_trace
from optdb.host.theano.functions.declared import declare_lengths

Plain = Mapping[type, Callable[[Any], PureOp]]
"""Maps an op class to a function that returns an op of this class without in-place operation."""


def plain_copy(
    nodes: Iterable[Apply],
    replace: dict[Variable, Variable],
    more: Plain = MappingProxyType({}),
    in_place: Collection[Apply] = (),
) -> dict[Variable, Variable]:
    """Copy nodes in topological order with plain ops instead of in-place ops; map variables to their copies.

    `replace` maps graph inputs to replacements of the same types. `more` contains additional plain ops of a device.
    Nodes in `in_place` stay in-place, because they are meant to overwrite variables in `replace`. An op that can only
    work in place gets copies of the inputs that it overwrites.
    """
    copies = dict(replace)
    plain_ops = {**_PLAIN, **more}
    for node in nodes:
        for var in node.inputs:
            if var not in copies:
                copies[var] = var.clone()
        inputs = [copies[var] for var in node.inputs]
        as_it_is = node in in_place
        outputs = node.clone_with_new_inputs(inputs).outputs if as_it_is else _plain_outputs(node, inputs, plain_ops)
        for old, new in zip(node.outputs, outputs, strict=True):
            copies[old] = new
            copy_trace(old, new)
            new.name = new.name or old.name
    return copies


def without_copies(var: Variable) -> Variable:
    """Return the variable that an output of the function copies or is a view of."""
    while var.owner is not None and isinstance(var.owner.op, DeepCopyOp | ViewOp):
        (var,) = var.owner.inputs
    return var


def plain_outputs(node: Apply, more: Plain = MappingProxyType({})) -> list[Variable]:
    """Return the equivalents of a node's outputs, computed by a plain op; see `plain_copy`."""
    outputs = _plain_outputs(node, list(node.inputs), {**_PLAIN, **more})
    for old, new in zip(node.outputs, outputs, strict=True):
        copy_trace(old, new)
    return outputs


def replace_in_linked(fgraph: FunctionGraph, pairs: Iterable[tuple[Variable, Variable]], reason: str) -> None:
    """Replace variables in a linker's graph without validation, even if the graph is a copy or was unpickled."""
    _let_change(fgraph)
    fgraph.replace_all(pairs, reason=reason)


def change_output(fgraph: FunctionGraph, index: int, var: Variable, reason: str) -> None:
    """Replace one output of a graph, as `replace_in_linked` does."""
    _let_change(fgraph)
    fgraph.change_input("output", index, var, reason=reason)


def _let_change(fgraph: FunctionGraph) -> None:
    """Restore the data that pickles omit and that changing a graph requires."""
    vars(fgraph).setdefault("execute_callbacks_times", dict.fromkeys(fgraph._features, 0))
    for feature in fgraph._features:
        if isinstance(feature, History):
            vars(feature).setdefault("history", {fgraph: None})


def _plain_outputs(node: Apply, inputs: list[Variable], plain_ops: Plain) -> list[Variable]:
    convolve = _CONVOLUTIONS.get(type(node.op))
    if convolve is not None and _has_abstract(node):
        # If some lengths are 1, a ConvOp infers a more specific result type than the abstract convolution does.
        out = patternbroadcast(convolve(node.op, inputs), node.outputs[0].type.broadcastable)
        return [node.outputs[0].type.filter_variable(out)]
    destroyed = getattr(node.op, "destroy_map", None) or {}
    overwritten = {slot for slots in destroyed.values() for slot in slots}
    plain = plain_ops.get(type(node.op))
    if overwritten and plain is not None:
        # Call make_node, not the op, because calling the op would convert the arguments again.
        return plain(node.op).make_node(*inputs).outputs
    for slot in overwritten:
        inputs[slot] = deep_copy_op(inputs[slot])
    return node.clone_with_new_inputs(inputs).outputs


def _without_inplace(op: Any) -> Op:
    return type(op)(inplace=False)


def _plain_change(op: AdvancedIncSubtensor1) -> Op:
    return type(op)(inplace=False, set_instead_of_inc=op.set_instead_of_inc)


def _plain_elemwise(op: Elemwise) -> Elemwise:
    return Elemwise(op.scalar_op, name=op.name, nfunc_spec=op.nfunc_spec, openmp=op.openmp)


def _plain_part(op: IncSubtensor) -> IncSubtensor:
    return IncSubtensor(op.idx_list, False, op.set_instead_of_inc, op.destroyhandler_tolerate_aliased)


def _plain_random(op: RandomFunction) -> RandomFunction:
    function, outtype, _, ndim_added = op._props()
    return RandomFunction(function, outtype, inplace=False, ndim_added=ndim_added)


_PLAIN: Plain = {
    Elemwise: _plain_elemwise,
    IncSubtensor: _plain_part,
    AdvancedIncSubtensor1: _plain_change,
    **dict.fromkeys((Gemm, Gemv, CGemv, SparseBlockGemv, SparseBlockOuter), _without_inplace),
    **dict.fromkeys((Ger, CGer, ScipyGer), lambda op: Ger(False)),
    mrg_uniform: lambda op: mrg_uniform(op.output_type),
    RandomFunction: _plain_random,
    Scan: lambda op: scan_overwriting(op, {}),
}


def _has_abstract(node: Apply) -> bool:
    op: Any = node.op
    if isinstance(op, ConvOp):
        return op.imshp_logical == op.imshp and op.kshp_logical == op.kshp
    # The shape that Theano infers for a gradient ignores dilation.
    has_shape = len(node.inputs) > 2 or isinstance(op, (CorrMM, Corr3dMM))
    return has_shape or set(op.filter_dilation) == {1}


def _convolution(op: Any, inputs: Sequence[Variable], abstract: Callable[..., Op]) -> Variable:
    """Return the abstract equivalent of a CorrMM op or of one of its gradients, applied to `inputs`."""
    arrays, shape = inputs[:2], list(inputs[2:])
    how = abstract(
        border_mode=op.border_mode,
        subsample=op.subsample,
        filter_flip=False,
        filter_dilation=op.filter_dilation,
        num_groups=op.num_groups,
        **({"unshared": op.unshared} if hasattr(op, "unshared") else {}),
    )
    if abstract in (AbstractConv2d, AbstractConv3d):
        return how(*arrays)
    return how(*arrays, shape or _lengths(op, arrays))


def _lengths(op: Any, arrays: Sequence[Variable]) -> list[Variable]:
    """Return the spatial lengths that a gradient op infers for its result."""
    node = op.make_node(*arrays)
    whole = op.infer_shape(node, [[var.shape[i] for i in range(var.ndim)] for var in node.inputs])[0]
    return [as_tensor_variable(length).astype("int64") for length in whole[-len(op.subsample) :]]


def _legacy_convolution(op: ConvOp, inputs: Sequence[Variable]) -> Variable:
    images, filters = inputs
    # Declare the lengths, because a ConvOp raises an error for other lengths, and an abstract convolution does not.
    images = declare_lengths(images, (op.bsize, *op.imshp))
    filters = declare_lengths(filters, (op.nkern, None, *op.kshp))
    return AbstractConv2d(border_mode=op.out_mode, subsample=(op.dx, op.dy), filter_flip=True)(images, filters)


_ABSTRACT: dict[type, Callable[..., Op]] = {
    CorrMM: AbstractConv2d,
    CorrMM_gradWeights: AbstractConv2d_gradWeights,
    CorrMM_gradInputs: AbstractConv2d_gradInputs,
    Corr3dMM: AbstractConv3d,
    Corr3dMM_gradWeights: AbstractConv3d_gradWeights,
    Corr3dMM_gradInputs: AbstractConv3d_gradInputs,
}


def _by_products(op: Any, inputs: Sequence[Variable]) -> Variable:
    return _convolution(op, inputs, _ABSTRACT[type(op)])


_CONVOLUTIONS: dict[type, Callable[[Any, Sequence[Variable]], Variable]] = {
    **dict.fromkeys(_ABSTRACT, _by_products),
    ConvOp: _legacy_convolution,
}
