"""Guards: cheap necessary conditions for Theano's rewriters to apply to a node.

Some rewriters are slow to find that they do not apply: they unify a pattern with the graph, decompose a product, or
catch an exception for each operand. A guard never rejects a node to which its rewriter applies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from theano import scalar
from theano import tensor as tt
from theano.compile.ops import DeepCopyOp, OutputGuard, Shape, Shape_i
from theano.gof import Type
from theano.gof.opt import PatternSub
from theano.tensor import opt
from theano.tensor.elemwise import DimShuffle, Elemwise, Prod
from theano.tensor.nnet import sigm
from theano.tensor.subtensor import Subtensor

from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.theano.speedups.algebra import get_num_denum, has_unknown_simplifiers

Guard = Callable[[Apply], bool]

#: Scalar ops that have an inverse.
INVERTIBLE = tuple(
    getattr(scalar.basic, name)
    for name in ("Deg2Rad", "Rad2Deg", "Cosh", "ArcCosh", "Tanh", "ArcTanh", "Sinh", "ArcSinh", "Conj", "Neg", "Inv")
)


def of_pattern(rewriter: PatternSub) -> Guard | None:
    """Return a guard that compares a node and its ancestors with a pattern; None if the rewriter reads other nodes."""
    if rewriter.skip_identities_fn is not None or rewriter.get_nodes is not None or rewriter.pdb:
        return None
    pattern = rewriter.in_pattern
    return lambda node: len(node.outputs) != 1 or _resembles(pattern, node.outputs[0])


def _resembles(pattern: Any, var: Variable) -> bool:
    """Return whether the ops that compute `var` match a pattern of PatternSub."""
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


# The guards that are called most often use loops, which take half as long as any() with a generator.


def has_constant_of_another_dtype(node: Apply) -> bool:
    """Return whether an input is a constant of a dtype other than the output's."""
    dtype = node.outputs[0].type.dtype
    for var in node.inputs:  # noqa: SIM110
        if isinstance(var, Constant) and var.type.dtype != dtype:
            return True
    return False


def _scalar_op_of(var: Variable) -> Any:
    owner = var.owner
    return None if owner is None else getattr(owner.op, "scalar_op", None)


def begins_with_switch(node: Apply) -> bool:
    """Return whether the first input is a switch."""
    owner = node.inputs[0].owner
    return owner is not None and isinstance(getattr(owner.op, "scalar_op", None), scalar.Switch)


def begins_with_invertible(node: Apply) -> bool:
    """Return whether the first input is computed by an op that has an inverse."""
    return isinstance(_scalar_op_of(node.inputs[0]), INVERTIBLE)


def has_fill(node: Apply) -> bool:
    """Return whether an input is a fill."""
    for var in node.inputs:
        owner = var.owner
        if owner is not None and isinstance(getattr(owner.op, "scalar_op", None), scalar.Second):
            return True
    return False


def has_alloc(node: Apply) -> bool:
    """Return whether an input is an Alloc, or a DimShuffle of an Alloc."""
    for var in node.inputs:
        owner = var.owner
        if owner is None:
            continue
        if isinstance(owner.op, DimShuffle):
            owner = owner.inputs[0].owner
        if owner is not None and isinstance(owner.op, tt.Alloc):
            return True
    return False


def has_switch_with_zero(node: Apply) -> bool:
    """Return whether an input is a switch with a zero branch."""
    for var in node.inputs:
        if var.owner is not None and isinstance(_scalar_op_of(var), scalar.Switch):
            _, left, right = var.owner.inputs
            if _is_zero(left) or _is_zero(right):
                return True
    return False


def is_decided_switch(node: Apply) -> bool:
    """Return whether a switch has identical branches, or a condition that is constant or computed from a branch."""
    if len(node.inputs) != 3:
        return True
    cond, left, right = node.inputs
    if isinstance(cond, Constant) or left is right:
        return True
    return cond.owner is not None and cond.owner.inputs[0] is right


def may_be_useless(node: Apply) -> bool:
    """Return whether the node has only one input, has the same input twice, or is an AND or OR with a constant."""
    if len(node.inputs) != 2:
        return len(node.inputs) == 1
    first, second = node.inputs
    if first is second:
        return True
    has_constant = isinstance(first, Constant) or isinstance(second, Constant)
    return has_constant and isinstance(_scalar_op_of(node.outputs[0]), (scalar.AND, scalar.OR))


#: Ops whose results may be lengths.
_LENGTHS = (Shape, Shape_i, Subtensor, tt.Join, opt.MakeVector)


def compares_length(node: Apply) -> bool:
    """Return whether a node compares an input with itself, or compares a constant with a sum or a possible length."""
    if len(node.inputs) != 2:
        return True
    first, second = node.inputs
    if first is second:
        return True
    if isinstance(second, Constant):
        first, second = second, first
    owner = second.owner
    if owner is None or not isinstance(first, Constant):
        return False
    return isinstance(owner.op, _LENGTHS) or isinstance(_scalar_op_of(second), scalar.Add)


def has_sigmoid_as_factor(node: Apply) -> bool:
    """Return whether a factor of a product, or of a nested product, is a sigmoid."""
    pending = list(node.inputs)
    while pending:
        var = pending.pop()
        scalar_op = _scalar_op_of(var)
        if isinstance(scalar_op, sigm.ScalarSigmoid):
            return True
        if var.owner is not None and isinstance(scalar_op, (scalar.Mul, scalar.Neg)):
            pending.extend(var.owner.inputs)
    return False


def may_take_all(node: Apply) -> bool:
    """Return whether each index is a slice that may start at the first element and have step 1."""
    if not isinstance(node.op, Subtensor):
        return True
    operands = iter(node.inputs[1:])
    for entry in node.op.idx_list:
        if not isinstance(entry, slice):
            return False
        start, _, step = [
            next(operands) if isinstance(part, Type) else part for part in (entry.start, entry.stop, entry.step)
        ]
        if not _may_be(start, 0) or not _may_be(step, 1):
            return False
    return True


def _may_be(part: Any, number: int) -> bool:
    """Return whether a part of a slice is absent or is the constant `number`."""
    if isinstance(part, Constant):
        part = part.data
    return part is None or not (isinstance(part, Variable) or part != number)


def may_have_length_one(node: Apply) -> bool:
    """Return whether the shape operand of a Reshape may contain a constant 1."""
    if not isinstance(node.op, tt.Reshape):
        return True
    shape = node.inputs[1]
    if isinstance(shape, Constant):
        return 1 in shape.data
    if shape.owner is None or not isinstance(shape.owner.op, opt.MakeVector):
        return True
    return any(var.data == 1 if isinstance(var, Constant) else _may_be_constant(var) for var in shape.owner.inputs)


#: The number of multiplications that Theano considers as expensive as one division.
_DIVISION = 1.5


def may_distribute(node: Apply) -> bool:
    """Return whether distributing a factor or divisor over a factor that is a sum may save an operation."""
    num, denum = get_num_denum(opt.local_mul_canonizer, node.outputs[0])
    if len(num) == 1 and not denum:
        return False
    out_type = node.outputs[0].type
    # Theano tries the divisors only after all factors. Factors can therefore not be distributed over a divisor.
    return _may_save(num, denum, out_type) or _may_save(denum, [], out_type)


def _may_save(factors: list[Variable], divisors: list[Variable], out_type: Type) -> bool:
    """Return whether distributing a later factor or a divisor over a factor that is a sum may save an operation."""
    for i, factor in enumerate(factors):
        if factor.owner is None:
            continue
        others = factors[i + 1 :]
        if not others and not divisors:
            return False
        terms = _terms(factor)
        if not terms:
            continue
        if has_unknown_simplifiers():
            return True
        cost: float = len(terms) - 1
        if any(sum(_most_saved([*num, var], denum, out_type) for num, denum in terms) > cost for var in others):
            return True
        cost *= _DIVISION
        if any(sum(_most_saved(num, [*denum, var], out_type) for num, denum in terms) > cost for var in divisors):
            return True
    return False


def _terms(var: Variable) -> list[tuple[list[Variable], list[Variable]]]:
    pos, neg = get_num_denum(opt.local_add_canonizer, var)
    if len(pos) == 1 and not neg:
        return []
    return [get_num_denum(opt.local_mul_canonizer, term) for term in itertools.chain(pos, neg)]


def _most_saved(num: list[Variable], denum: list[Variable], out_type: Type) -> float:
    """Return the maximum number of operations saved by simplifying a product."""
    canonizer = opt.local_mul_canonizer
    saved = 0.0
    numbers = [number for number in map(canonizer.get_constant, num) if number is not None]
    if len(numbers) == 1:
        saved += bool(numbers[0] == 1)
    elif numbers:
        with np.errstate(all="ignore"):
            saved += len(numbers) - len(canonizer.calculate(numbers, [], aslist=True, out_type=out_type))
    for var in denum:
        if var in num:
            saved += 1 + _DIVISION
        elif isinstance(var, Constant):
            saved += _DIVISION + bool(numbers)
        elif var.owner is not None and (isinstance(var.owner.op, DimShuffle) or var.owner.op == tt.abs_):
            saved += _DIVISION
    return saved


def has_zero_operand(node: Apply) -> bool:
    """Return whether an input may be zero."""
    for var in node.inputs:  # noqa: SIM110
        if _may_be_constant(var) if var.owner is not None else _is_zero(var):
            return True
    return False


def is_no_product_of_some_axes(node: Apply) -> bool:
    """Return whether a reduction is a sum, or reduces all axes.

    Theano 1.0.5 takes a factor out of ``(2 * x).prod(axis=1)`` with a wrong exponent; this guard prevents that rewrite.
    """
    op = node.op
    return not isinstance(op, Prod) or op.axis is None or len(op.axis) == node.inputs[0].type.ndim


def _is_zero(var: Variable) -> bool:
    """Return whether `var` is a constant that Theano's get_scalar_constant_value evaluates to 0."""
    if not isinstance(var, Constant):
        return False
    value = getattr(var.tag, "unique_value", None)
    if value is None:
        value = var.data
    return np.size(value) == 1 and bool(value == 0)


#: Ops for which Theano's get_scalar_constant_value returns the value of their first input.
_PASSED_THROUGH = (
    *(tt.Alloc, DimShuffle, tt.Rebroadcast, OutputGuard, DeepCopyOp, opt.Assert),
    *(tt.ScalarFromTensor, tt.TensorFromScalar),
)
#: Scalar ops that get_scalar_constant_value can evaluate.
_COMPUTED = tt.basic.get_scalar_constant_value_elemwises


#: The maximum depth of get_scalar_constant_value's search.
_MAX_DEPTH = 10


def _may_be_constant(var: Variable, depth: int = _MAX_DEPTH) -> bool:
    """Return whether Theano's get_scalar_constant_value may find a number."""
    needed = _looked_at(var) if depth else None
    if needed is None:
        return isinstance(var, Constant)
    for operand in needed:  # noqa: SIM110
        if not _may_be_constant(operand, depth - 1):
            return False
    return True


def _looked_at(var: Variable) -> Sequence[Variable] | None:
    """Return the operands from which get_scalar_constant_value finds the value of `var`; None if it finds no value."""
    owner = var.owner
    if owner is None:
        return None
    op = owner.op
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else op
    if isinstance(scalar_op, scalar.ScalarOp):
        if isinstance(scalar_op, scalar.Second):
            return owner.inputs[1:]
        return owner.inputs if _is_computed(type(scalar_op)) else None
    if isinstance(op, _PASSED_THROUGH):
        return owner.inputs[:1]
    if isinstance(op, Shape_i):
        return () if _has_known_length(owner.inputs[0], op.i) else None
    return () if isinstance(op, Subtensor) and not var.type.ndim else None


@cache
def _is_computed(scalar_op: type) -> bool:
    return issubclass(scalar_op, _COMPUTED)


def _has_known_length(var: Variable, axis: int) -> bool:
    return isinstance(var, Constant) or bool(getattr(var.type, "broadcastable", ())[axis : axis + 1] == (True,))
