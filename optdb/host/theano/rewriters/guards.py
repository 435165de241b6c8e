"""Guards: necessary conditions, cheap to test, for Theano's rewriters to apply to a node.

Of a hundred attempts one changes something. Some of Theano's rewriters take long to find out that they do not apply:
they build a unification, decompose a product, or catch an exception for each operand. A guard first tests a
necessary condition. It may pass a node to which the rewriter does not apply; it never rejects one to which it applies.
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

#: Scalar ops that have an inverse, or are their own.
INVERTIBLE = tuple(
    getattr(scalar.basic, name)
    for name in ("Deg2Rad", "Rad2Deg", "Cosh", "ArcCosh", "Tanh", "ArcTanh", "Sinh", "ArcSinh", "Conj", "Neg", "Inv")
)


def of_pattern(rewriter: PatternSub) -> Guard | None:
    """Return the guard of a pattern: whether the ops that compute a node match it; None if it may look elsewhere."""
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


# Loops, in what is asked most: each takes half as long as any() of a generator.


def has_constant_of_another_dtype(node: Apply) -> bool:
    """Tell whether an input is a constant of another dtype than the output's."""
    dtype = node.outputs[0].type.dtype
    for var in node.inputs:  # noqa: SIM110
        if isinstance(var, Constant) and var.type.dtype != dtype:
            return True
    return False


def _scalar_op_of(var: Variable) -> Any:
    """Return the scalar op that `var` is computed by, in an elementwise op or a reduction; None if there is none."""
    owner = var.owner
    return None if owner is None else getattr(owner.op, "scalar_op", None)


def begins_with_switch(node: Apply) -> bool:
    """Tell whether the first input is a switch."""
    owner = node.inputs[0].owner
    return owner is not None and isinstance(getattr(owner.op, "scalar_op", None), scalar.Switch)


def begins_with_invertible(node: Apply) -> bool:
    """Tell whether the first input is computed by an op that has an inverse."""
    return isinstance(_scalar_op_of(node.inputs[0]), INVERTIBLE)


def has_fill(node: Apply) -> bool:
    """Tell whether an input is a fill."""
    for var in node.inputs:
        owner = var.owner
        if owner is not None and isinstance(getattr(owner.op, "scalar_op", None), scalar.Second):
            return True
    return False


def has_alloc(node: Apply) -> bool:
    """Tell whether an input is an Alloc, or a DimShuffle of one."""
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
    """Tell whether an input is a switch with a branch that is zero."""
    for var in node.inputs:
        if var.owner is not None and isinstance(_scalar_op_of(var), scalar.Switch):
            _, left, right = var.owner.inputs
            if _is_zero(left) or _is_zero(right):
                return True
    return False


def is_decided_switch(node: Apply) -> bool:
    """Tell whether the condition is a constant, or both branches are one, or the condition asks about a branch."""
    if len(node.inputs) != 3:
        return True
    cond, left, right = node.inputs
    if isinstance(cond, Constant) or left is right:
        return True
    return cond.owner is not None and cond.owner.inputs[0] is right


def may_be_useless(node: Apply) -> bool:
    """Tell whether there is one input, or both are the same, or one of AND and OR is a constant."""
    if len(node.inputs) != 2:
        return len(node.inputs) == 1
    first, second = node.inputs
    if first is second:
        return True
    has_constant = isinstance(first, Constant) or isinstance(second, Constant)
    return has_constant and isinstance(_scalar_op_of(node.outputs[0]), (scalar.AND, scalar.OR))


#: Ops whose results are lengths, or may be.
_LENGTHS = (Shape, Shape_i, Subtensor, tt.Join, opt.MakeVector)


def compares_length(node: Apply) -> bool:
    """Tell whether an input is compared with itself, or what may be a length, or a sum of them, with a constant."""
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
    """Tell whether a factor, of inputs that are products, is a sigmoid."""
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
    """Tell whether each index is a slice that begins with the first element and leaves none out up to its end."""
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
    """Tell whether a part of a slice may be `number`, or is left out; one that is not a constant is neither."""
    if isinstance(part, Constant):
        part = part.data
    return part is None or not (isinstance(part, Variable) or part != number)


def may_have_length_one(node: Apply) -> bool:
    """Tell whether Reshape's shape may have a constant 1 in it."""
    if not isinstance(node.op, tt.Reshape):
        return True
    shape = node.inputs[1]
    if isinstance(shape, Constant):
        return 1 in shape.data
    if shape.owner is None or not isinstance(shape.owner.op, opt.MakeVector):
        return True
    return any(var.data == 1 if isinstance(var, Constant) else _may_be_constant(var) for var in shape.owner.inputs)


#: How many multiplications Theano counts for a division, where it looks for operations to save.
_DIVISION = 1.5


def may_distribute(node: Apply) -> bool:
    """Tell whether a factor or divisor may go into a sum that is another one, and save an operation."""
    num, denum = get_num_denum(opt.local_mul_canonizer, node.outputs[0])
    if len(num) == 1 and not denum:
        return False
    out_type = node.outputs[0].type
    # Each one meets those after it. No factor is left where Theano comes to the divisors.
    return _may_save(num, denum, out_type) or _may_save(denum, [], out_type)


def _may_save(factors: list[Variable], divisors: list[Variable], out_type: Type) -> bool:
    """Tell whether one of `factors` may be a sum that takes a later one, or a divisor, in.

    Theano counts the operation that goes away, and those that each term gets or loses.
    """
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
    """Return the factors and divisors of the terms of a sum; nothing for what is none."""
    pos, neg = get_num_denum(opt.local_add_canonizer, var)
    if len(pos) == 1 and not neg:
        return []
    return [get_num_denum(opt.local_mul_canonizer, term) for term in itertools.chain(pos, neg)]


def _most_saved(num: list[Variable], denum: list[Variable], out_type: Type) -> float:
    """Return how many operations Theano saves at most where it simplifies a product.

    It cancels what is in both, puts numbers together, leaves out a factor of 1, and knows ``x / abs(x)`` and the
    softmax, whose divisor is a DimShuffle.
    """
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
    """Tell whether an input is zero, or may be found to be."""
    for var in node.inputs:  # noqa: SIM110
        if _may_be_constant(var) if var.owner is not None else _is_zero(var):
            return True
    return False


def is_no_product_of_some_axes(node: Apply) -> bool:
    """Tell whether a reduction is a sum, or folds all axes.

    Theano 1.0.5 takes a factor out of a product as its power to the number of all elements, also where only some axes
    are multiplied: ``(2 * x).prod(axis=1)`` is a wrong number then. So this guard rejects what the rewriter applies to.
    """
    op = node.op
    return not isinstance(op, Prod) or op.axis is None or len(op.axis) == node.inputs[0].type.ndim


def _is_zero(var: Variable) -> bool:
    """Tell whether `var` is a constant that Theano's get_scalar_constant_value takes for 0."""
    if not isinstance(var, Constant):
        return False
    value = getattr(var.tag, "unique_value", None)
    if value is None:
        value = var.data
    return np.size(value) == 1 and bool(value == 0)


#: Ops that Theano's get_scalar_constant_value sees through to their first input.
_PASSED_THROUGH = (
    tt.Alloc,
    DimShuffle,
    tt.Rebroadcast,
    OutputGuard,
    DeepCopyOp,
    opt.Assert,
    tt.ScalarFromTensor,
    tt.TensorFromScalar,
)
#: Scalar ops that it computes.
_COMPUTED = tt.basic.get_scalar_constant_value_elemwises


#: The number of nodes in a row that it looks at.
_MAX_DEPTH = 10


def _may_be_constant(var: Variable, depth: int = _MAX_DEPTH) -> bool:
    """Tell whether Theano's get_scalar_constant_value may find a number: all that it looks at has to be one."""
    needed = _looked_at(var) if depth else None
    if needed is None:
        return isinstance(var, Constant)
    for operand in needed:  # noqa: SIM110
        if not _may_be_constant(operand, depth - 1):
            return False
    return True


def _looked_at(var: Variable) -> Sequence[Variable] | None:
    """Return the variables whose values decide that of `var`; None if no node's operands do."""
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
