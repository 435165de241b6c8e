"""Cheap tests that show that a rewriter of Theano's does not apply to a node.

Of a hundred attempts one changes something. Some of Theano's rewriters take long to find out that they do not apply:
they build a unification, take a product apart, or catch an exception for each operand. A guard first tests a
necessary condition. It may pass a node to which the rewriter does not apply; it never rejects one to which it applies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from theano import scalar
from theano import tensor as tt
from theano.compile.ops import DeepCopyOp, OutputGuard, Shape_i
from theano.gof.opt import PatternSub
from theano.tensor import opt
from theano.tensor.elemwise import DimShuffle, Elemwise
from theano.tensor.subtensor import Subtensor

from optdb.host.graph import Apply, Constant, Variable

Guard = Callable[[Apply], bool]


def guard_of(rewriter: Any) -> Guard | None:
    """Return the guard of `rewriter`, which tells whether it may apply to a node; None if it has none."""
    if type(rewriter) is PatternSub:
        return _guard_of_pattern(rewriter)
    return _GUARDS.get(rewriter)


def _guard_of_pattern(rewriter: PatternSub) -> Guard | None:
    if rewriter.skip_identities_fn is not None or rewriter.get_nodes is not None or rewriter.pdb:
        return None
    pattern = rewriter.in_pattern
    return lambda node: len(node.outputs) != 1 or _resembles(pattern, node.outputs[0])


def _resembles(pattern: Any, var: Variable) -> bool:
    """Tell whether the ops that compute `var` match a pattern of PatternSub's."""
    if isinstance(pattern, (list, tuple)):
        owner = var.owner
        return (
            owner is not None
            and len(pattern) == len(owner.inputs) + 1
            and bool(owner.op == pattern[0])
            and all(map(_resembles, pattern[1:], owner.inputs))
        )
    if isinstance(pattern, dict):
        return "pattern" not in pattern or _resembles(pattern["pattern"], var)
    return not isinstance(pattern, (int, float, Constant)) or isinstance(var, Constant)


def _has_input_of_another_dtype(node: Apply) -> bool:
    dtype = node.outputs[0].type.dtype
    return any(var.type.dtype != dtype for var in node.inputs)


def _begins_with_switch(node: Apply) -> bool:
    owner = node.inputs[0].owner
    return owner is not None and isinstance(owner.op, Elemwise) and isinstance(owner.op.scalar_op, scalar.Switch)


_SUMS = (tt.add, tt.sub, tt.neg)


def _has_sum_as_factor(node: Apply) -> bool:
    num, denum = opt.local_mul_canonizer.get_num_denum(node.outputs[0])
    return any(
        var.owner is not None and (isinstance(var.owner.op, DimShuffle) or var.owner.op in _SUMS)
        for factors in (num, denum)
        for var in factors
    )


def _has_constant_operand(node: Apply) -> bool:
    return any(map(_may_be_constant, node.inputs))


#: Ops whose first input Theano's get_scalar_constant_value looks at in their place.
_PASSED_THROUGH = (tt.Alloc, DimShuffle, tt.Rebroadcast, OutputGuard, DeepCopyOp)
#: Others that it knows; those that are named nowhere have no constant value to it.
_MAYBE_CONSTANT = (Shape_i, opt.Assert, scalar.ScalarOp, tt.ScalarFromTensor, tt.TensorFromScalar)


def _may_be_constant(var: Variable) -> bool:
    """Tell whether Theano's get_scalar_constant_value may find a number: everything it would look at is one."""
    seen: set[Variable] = set()
    pending = [var]
    while pending:
        var = pending.pop()
        if isinstance(var, Constant) or var in seen:
            continue
        seen.add(var)
        owner = var.owner
        if owner is None:
            return False
        op = owner.op
        if isinstance(op, Elemwise):
            pending.extend(owner.inputs[1:] if isinstance(op.scalar_op, scalar.Second) else owner.inputs)
        elif isinstance(op, _PASSED_THROUGH):
            pending.append(owner.inputs[0])
        elif isinstance(op, Subtensor):
            if var.type.ndim:
                return False
        elif not isinstance(op, _MAYBE_CONSTANT):
            return False
    return True


_GUARDS: dict[Any, Guard] = {
    opt.local_upcast_elemwise_constant_inputs: _has_input_of_another_dtype,
    opt.local_merge_switch_same_cond: _begins_with_switch,
    opt.local_greedy_distributor: _has_sum_as_factor,
    opt.local_mul_zero: _has_constant_operand,
    opt.local_add_specialize: _has_constant_operand,
}
