"""Guards for PyTensor's node rewriters: cheap necessary conditions on a node and its ancestors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor import scalar
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting import basic, math, subtensor
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorConstant

from optdb.host.api.graph import Apply, PureOp, Variable
from optdb.host.pytensor.constants import CachedByOp, may_be_constant

Guard = Callable[[Apply], bool]


class _OperandOps:
    """Recognizes nodes with at least `least` inputs from ops of a certain kind."""

    def __init__(self, is_wanted: Callable[[PureOp], bool], least: int = 1) -> None:
        self._is_wanted = CachedByOp(is_wanted)
        self._least = least

    def are_in(self, node: Apply) -> bool:
        known = self._is_wanted.known
        count = 0
        for var in node.inputs:
            owner = var.owner
            if owner is None:
                continue
            entry = known.get(id(owner.op))
            if self._is_wanted(owner.op) if entry is None else entry[1]:
                count += 1
                if count == self._least:
                    return True
        return False


def _elementwise(*classes: type) -> Callable[[PureOp], bool]:
    return lambda op: isinstance(op, Elemwise) and isinstance(op.scalar_op, classes)


def _of(*classes: type) -> Callable[[PureOp], bool]:
    return lambda op: isinstance(op, classes)


def _number(var: Variable) -> Any:
    return var.unique_value if isinstance(var, TensorConstant) else None


def _may_have_a_zero(node: Apply) -> bool:
    """Return whether PyTensor may find an input to be zero."""
    for var in node.inputs:
        if var.owner is not None:
            if may_be_constant(var):
                return True
        elif isinstance(var, Constant) and (not isinstance(var, TensorConstant) or _number(var) == 0):
            return True
    return False


_NEGATED = _OperandOps(_elementwise(scalar.Neg))


def _has_a_special_factor(node: Apply) -> bool:
    """Return whether a factor is a negation or one of the numbers 0, 1 and -1."""
    for var in node.inputs:
        if (
            var.owner is None
            and isinstance(var, Constant)
            and (not isinstance(var, TensorConstant) or _number(var) in (0, 1, -1))
        ):
            return True
    return _NEGATED.are_in(node)


def _has_constant_inputs(node: Apply) -> bool:
    for var in node.inputs:  # noqa: SIM110  a loop takes half as long as all() with a generator
        if var.owner is not None or not isinstance(var, Constant):
            return False
    return True


def _has_one_input(node: Apply) -> bool:
    return len(node.inputs) == 1


def _may_be_useless(node: Any) -> bool:
    return len(node.inputs) == 1 or not isinstance(node.op.scalar_op, (scalar.Add, scalar.Mul))


#: Maps a rewriter to its guard, a necessary condition on nodes.
GUARDS: dict[Any, Guard] = {
    basic.constant_folding: _has_constant_inputs,
    basic.local_alloc_unary: _has_one_input,
    basic.local_elemwise_alloc: _OperandOps(_of(Alloc)).are_in,
    basic.local_second_sink: _OperandOps(_elementwise(scalar.Second)).are_in,
    basic.local_merge_switch_same_cond: _OperandOps(_elementwise(scalar.Switch)).are_in,
    basic.local_useless_elemwise: _may_be_useless,
    math.local_abs_merge: _OperandOps(_elementwise(scalar.Abs), least=2).are_in,
    math.local_add_remove_zeros: _may_have_a_zero,
    math.local_mul_exp_to_exp_add: _OperandOps(_elementwise(scalar.Exp), least=2).are_in,
    math.local_mul_pow_to_pow_add: _OperandOps(_elementwise(scalar.Pow), least=2).are_in,
    math.local_mul_specialize: _has_a_special_factor,
    math.local_mul_switch_sink: _OperandOps(_elementwise(scalar.Switch)).are_in,
    subtensor.local_IncSubtensor_serialize: _OperandOps(_of(IncSubtensor, AdvancedIncSubtensor)).are_in,
    subtensor.local_add_of_sparse_write: _OperandOps(_of(IncSubtensor, AdvancedIncSubtensor)).are_in,
}

_COMPARED = (scalar.LT, scalar.GT, scalar.LE, scalar.GE, scalar.EQ, scalar.ScalarMinimum, scalar.ScalarMaximum)
_USELESS = (scalar.Mul, scalar.Add, scalar.Identity, scalar.EQ, scalar.NEQ, scalar.XOR, scalar.AND, scalar.OR)

#: Maps a rewriter to a necessary condition on ops that it tracks.
TRACKS: dict[Any, Callable[[PureOp], bool]] = {
    basic.local_useless_elemwise: _elementwise(*_USELESS),
    math.local_useless_elemwise_comparison: _elementwise(*_COMPARED),
}
