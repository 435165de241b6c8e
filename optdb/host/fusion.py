"""Scalar graphs of the host, for loop fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from theano import scalar
from theano.gof.graph import io_toposort
from theano.gof.op import get_test_value
from theano.gof.utils import MethodNotDefined
from theano.scalar import Composite, get_scalar_type
from theano.tensor.opt import FusionOptimizer, elemwise_max_input_fct, local_elemwise_fusion

from optdb.host.config import config
from optdb.host.graph import MetaObject, Variable
from optdb.host.testvalues import without_test_values

__all__ = [
    "Composite",
    "FusionOptimizer",
    "apply_scalar_op",
    "composite_of_new_graph",
    "elemwise_max_input_fct",
    "has_c_code",
    "is_cheap",
    "local_elemwise_fusion",
    "scalar_like",
]

_CHEAP = frozenset(
    getattr(scalar.basic, name)
    for name in (
        *("Add", "Sub", "Mul", "TrueDiv", "Neg", "Inv", "Abs", "Sqr", "Sgn", "Cast", "Identity", "Second"),
        *("LT", "GT", "LE", "GE", "EQ", "NEQ", "AND", "OR", "XOR", "Invert"),
        *("Switch", "Clip", "Maximum", "Minimum", "IsNan", "IsInf"),
    )
)


def is_cheap(op: Any) -> bool:
    """Tell whether a scalar op takes a few instructions, so that computing it again costs less than storing it."""
    return type(op) in _CHEAP


def scalar_like(var: Variable) -> Variable:
    """Return a scalar variable of the dtype of `var`, with the first of its test values where they are asked for."""
    scalar = get_scalar_type(var.dtype).make_variable()
    if config.compute_test_value == "off":
        return scalar
    try:
        value = get_test_value(var)
    except AttributeError:  # it has none
        return scalar
    scalar.tag.test_value = value.flatten()[0] if value.size else value
    return scalar


def apply_scalar_op(op: Any, inputs: Sequence[Variable]) -> Variable:
    """Apply a scalar op of one output; a Composite is spelled out, step by step."""
    if not isinstance(op, Composite):
        return op(*inputs, return_list=True)[0]
    replacements = dict(zip(op.inputs, inputs, strict=True))
    for node in io_toposort(op.inputs, op.outputs):
        outputs = node.op(*[replacements.get(var, var) for var in node.inputs], return_list=True)
        replacements.update(zip(node.outputs, outputs, strict=True))
    return replacements[op.outputs[0]]


def composite_of_new_graph(inputs: Sequence[Variable], output: Variable) -> Composite:
    """Return a Composite of a scalar graph that was made for it alone, and contains no Composite.

    Theano copies the graph twice: once because others may use it, and once for the op's own FunctionGraph.
    """
    if type(Composite) is not MetaObject:  # the op cache is installed, and constructs ops itself
        return Composite(inputs, [output])
    op = object.__new__(Composite)
    op.inputs, op.outputs = list(inputs), [output]
    op.inputs_type, op.outputs_type = tuple(var.type for var in inputs), (output.type,)
    op.nin, op.nout = len(inputs), 1
    op.init_fgraph()
    op.name = None
    op.prepare_node_called = set()
    return op


def has_c_code(op: Any, dtypes: Sequence[str]) -> bool:
    """Tell whether a scalar op has C code for inputs of `dtypes`."""
    with without_test_values():
        node = op(*[get_scalar_type(dtype).make_variable() for dtype in dtypes], return_list=True)[0].owner
    names = ["x"] * len(node.inputs), ["z"] * len(node.outputs)
    try:
        node.op.c_code(node, "test_presence_of_c_code", *names, {"fail": "%(fail)s"})
    except (MethodNotDefined, NotImplementedError):
        return False
    return True
