"""Base classes and hooks for new kinds of variables: types, shared variables, transfers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from theano.compile.sharedvalue import SharedVariable, shared_constructor
from theano.gof import Constant, Type, Variable
from theano.tensor.basic import as_tensor_variable, patternbroadcast, register_transfer, transfer
from theano.tensor.type import TensorType
from theano.tensor.type_other import SliceConstant, slicetype
from theano.tensor.var import TensorConstantSignature, TensorVariable, _tensor_py_operators

TensorOperators = _tensor_py_operators


def is_host_array(var: Variable) -> bool:
    """Return whether a variable is a dense array on the host."""
    return isinstance(var.type, TensorType)


def add_transfer(
    move: Callable[[Variable, Hashable], Variable | None], unknown: Callable[[Hashable], Exception]
) -> Callable[[Variable, Hashable], Variable | None]:
    """Make ``variable.transfer(target)`` support another device; return the added function.

    `move` returns None for targets of other devices. `unknown` creates the error for an unknown target.
    """

    def ask(var: Any, target: Hashable) -> Variable:
        others = transfer._others
        for mover in (move, *others[others.index(ask) + 1 :]):
            moved = mover(var, target)
            if moved is not None:
                return moved
        raise unknown(target)

    register_transfer(ask)
    return ask


def constant_slice(value: slice) -> Constant:
    """Return a slice with integer bounds as a constant that indexing ops take as an input."""
    return SliceConstant(slicetype, value)
