"""Finer tracks of Theano's rewriters than they declare.

Many rewriters say that they track Elemwise, or say nothing, and then begin by
asking for one scalar op.  They decline most nodes by the op alone.  :func:`may_apply` knows those first
questions, and answers them once per op instead of once per node.

The knowledge is about Theano 1.0.5, which does not change any more; a test
tries each rewriter named here on the ops that it is said to decline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from theano import scalar
from theano.compile.ops import Shape_i, ViewOp
from theano.tensor import opt
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet import nnet

from optdb.host.graph import Op
from optdb.host.guards import INVERTIBLE
from optdb.host.rewriters import LocalOptimizer

#: What the scalar ops whose inputs may be upcast beforehand say of their outputs' dtypes.
_UPCASTING = (scalar.upgrade_to_float, scalar.upcast_out)


def _of(*classes: type) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, classes)


def _elementwise(*classes: type) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Elemwise) and isinstance(op.scalar_op, classes)


def _named(*names: str) -> Iterator[type]:
    return (getattr(scalar.basic, name) for name in names)


def _upcasts(op: Op) -> bool:
    return isinstance(op, Elemwise) and getattr(op.scalar_op, "output_types_preference", None) in _UPCASTING


#: Rewriter to the question that it asks of the op first.
_questions: dict[LocalOptimizer, Callable[[Op], bool]] = {
    opt.local_cast_cast: _elementwise(scalar.Cast),
    opt.local_elemwise_sub_zeros: _elementwise(scalar.Sub),
    opt.local_expm1: _elementwise(scalar.Sub),
    opt.local_func_inv: _elementwise(*INVERTIBLE),
    opt.local_merge_switch_same_cond: _elementwise(scalar.basic.BinaryScalarOp, scalar.Add, scalar.Mul),
    opt.local_track_shape_i: _of(Shape_i),
    opt.local_upcast_elemwise_constant_inputs: _upcasts,
    opt.local_useless_composite: _elementwise(scalar.Composite),
    opt.local_useless_elemwise: _elementwise(*_named("EQ", "NEQ", "Mul", "Add", "Identity", "AND", "OR", "XOR")),
    opt.local_useless_elemwise_comparison: _elementwise(*_named("LT", "GT", "LE", "GE", "EQ", "Minimum", "Maximum")),
    opt.local_useless_switch: _elementwise(scalar.Switch),
    opt.local_view_op: _of(ViewOp),
    nnet.local_logsoftmax: _elementwise(scalar.Log),
}


def may_apply(rewriter: LocalOptimizer, op: Op) -> bool:
    """Tell whether `rewriter`, whose tracks include `op`, may apply to a node of it.

    Parameters
    ----------
    rewriter : LocalOptimizer
    op : Op

    Returns
    -------
    bool
        False only where the rewriter is known to decline whatever the node.
    """
    asks = _questions.get(rewriter)
    return asks is None or asks(op)


def question_of(rewriter: LocalOptimizer) -> Callable[[Op], bool] | None:
    """Return what `rewriter` is known to ask of an op first; it declines where the answer is no."""
    return _questions.get(rewriter)


def known_rewriters() -> list[LocalOptimizer]:
    """Return the rewriters with finer tracks here than they declare."""
    return list(_questions)
