"""Finer tracks of Theano's rewriters than they declare.

Many rewriters say that they track Elemwise, or say nothing, and then begin by
asking for one scalar op.  They decline most nodes by the op alone.  :func:`may_apply` knows those first
questions, and answers them once per op instead of once per node.

The knowledge is about Theano 1.0.5, which does not change any more; a test
tries each rewriter named here on the ops that it is said to decline.
"""

from __future__ import annotations

from typing import Any

from theano import scalar
from theano.compile.ops import Shape_i, ViewOp
from theano.tensor import opt
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet import nnet

from optdb.host.graph import Op
from optdb.host.guards import INVERTIBLE
from optdb.host.rewriters import LocalOptimizer

_COMPARISONS = ("LT", "GT", "LE", "GE", "EQ", "Minimum", "Maximum")

#: Rewriter to the classes of scalar ops that it looks at, within Elemwise.
_scalar_ops: dict[LocalOptimizer, tuple[type, ...]] = {
    opt.local_cast_cast: (scalar.Cast,),
    opt.local_elemwise_sub_zeros: (scalar.Sub,),
    opt.local_expm1: (scalar.Sub,),
    opt.local_func_inv: INVERTIBLE,
    opt.local_merge_switch_same_cond: (scalar.basic.BinaryScalarOp, scalar.Add, scalar.Mul),
    opt.local_useless_composite: (scalar.Composite,),
    opt.local_useless_elemwise: tuple(
        getattr(scalar.basic, name) for name in ("EQ", "NEQ", "Mul", "Add", "Identity", "AND", "OR", "XOR")
    ),
    opt.local_useless_elemwise_comparison: tuple(getattr(scalar.basic, name) for name in _COMPARISONS),
    opt.local_useless_switch: (scalar.Switch,),
    nnet.local_logsoftmax: (scalar.Log,),
}

#: Rewriter without tracks to the classes of ops that it looks at.
_op_classes: dict[LocalOptimizer, tuple[type, ...]] = {
    opt.local_track_shape_i: (Shape_i,),
    opt.local_view_op: (ViewOp,),
}

#: What the scalar ops whose inputs may be upcast beforehand say of their outputs' dtypes.
_UPCASTING = (scalar.upgrade_to_float, scalar.upcast_out)


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
    classes: Any = _op_classes.get(rewriter)
    if classes is not None:
        return isinstance(op, classes)
    classes = _scalar_ops.get(rewriter)
    if classes is not None:
        return isinstance(op, Elemwise) and isinstance(op.scalar_op, classes)
    if rewriter is opt.local_upcast_elemwise_constant_inputs:
        return isinstance(op, Elemwise) and getattr(op.scalar_op, "output_types_preference", None) in _UPCASTING
    return True


def known_rewriters() -> list[LocalOptimizer]:
    """Return the rewriters with finer tracks here than they declare."""
    return [*_scalar_ops, *_op_classes, opt.local_upcast_elemwise_constant_inputs]
