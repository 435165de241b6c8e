"""Scalar graphs of the host, for loop fusion."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from theano import scalar
from theano.gof.op import get_test_value
from theano.gof.utils import MethodNotDefined
from theano.scalar import Composite, get_scalar_type
from theano.scalar.basic import Abs, ScalarOp
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import FusionOptimizer, elemwise_max_input_fct, local_elemwise_fusion

from optdb.host.api.bookkeeping import import_one
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Constant, FunctionGraph, MetaObject, Variable, io_toposort
from optdb.host.api.testvalues import without_test_values
from optdb.host.theano.speedups.fresh import new_node

#: A step of a Composite: an op, the slots of its inputs, and the output's dtype. A slot is the index of a value among
#: the inputs, followed by the steps' outputs.
Step = tuple[Any, tuple[int, ...], str]

_CHEAP = frozenset(
    getattr(scalar.basic, name)
    for name in (
        *("Add", "Sub", "Mul", "TrueDiv", "Neg", "Inv", "Abs", "Sqr", "Sgn", "Cast", "Identity", "Second"),
        *("LT", "GT", "LE", "GE", "EQ", "NEQ", "AND", "OR", "XOR", "Invert"),
        *("Switch", "Clip", "Maximum", "Minimum", "IsNan", "IsInf"),
    )
)


def scalar_op_of(node: Apply) -> ScalarOp:
    """Return the scalar op of an elementwise node."""
    assert isinstance(node.op, Elemwise)
    return node.op.scalar_op


def is_cheap(op: Any) -> bool:
    """Return whether a scalar op takes so few instructions that recomputing its result costs less than storing it."""
    return type(op) in _CHEAP


def composite(inputs: Sequence[Variable], steps: Sequence[Step]) -> Composite:
    """Return an op that executes `steps` on scalars like `inputs`, and returns the last step's output."""
    # If the op cache is installed, its metaclass may have replaced MetaObject.
    if type(Composite) is MetaObject and config.compute_test_value == "off":
        plain = _PlainSteps([var.type.dtype for var in inputs])
        if plain.take_all(steps):
            return plain.composite()
    scalars = [_scalar_like(var) for var in inputs]
    values = list(scalars)
    for op, slots, _ in steps:
        values.append(_apply(op, [values[slot] for slot in slots]))
    return Composite(scalars, [values[-1]])


class _PlainSteps:
    """The distinct steps of a Composite; no step is itself a Composite.

    Theano makes the nodes of the steps, copies them twice, and merges equal nodes. This class merges equal steps before
    it makes nodes, and makes each node only twice, with known types and without test values.
    """

    def __init__(self, dtypes: list[str]) -> None:
        self._dtypes = dtypes
        self._count = len(dtypes)
        self._slot_of: dict[tuple[Any, tuple[int, ...]], int] = {}
        self._last = -1

    def take_all(self, steps: Sequence[Step]) -> bool:
        """Add `steps`; return False if only Theano can make their nodes."""
        slot_of = list(range(self._count))
        for op, slots, dtype in steps:
            slot = self._take(op, tuple([slot_of[slot] for slot in slots]), dtype)
            if slot is None:
                return False
            slot_of.append(slot)
        self._last = slot_of[-1]
        return True

    def _take(self, op: Any, slots: tuple[int, ...], dtype: str) -> int | None:
        if isinstance(op, Composite):
            return self._take_composite(op, slots)
        if not _makes_plain_nodes(op):
            return None
        key = (op, slots)
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._slot_of[key] = len(self._dtypes)
            self._dtypes.append(dtype)
        return slot

    def _take_composite(self, op: Composite, slots: tuple[int, ...]) -> int | None:
        if [var.type.dtype for var in op.inputs] != [self._dtypes[slot] for slot in slots]:
            return None
        slot_of: dict[Variable, int] = dict(zip(op.inputs, slots, strict=True))
        for node in io_toposort(op.inputs, op.outputs):
            if len(node.outputs) != 1 or any(isinstance(var, Constant) for var in node.inputs):
                return None
            inner_slots = tuple([slot_of[var] for var in node.inputs])
            slot = self._take(node.op, inner_slots, node.outputs[0].type.dtype)
            if slot is None:
                return None
            slot_of[node.outputs[0]] = slot
        return slot_of[op.outputs[0]]

    def composite(self) -> Composite:
        op = object.__new__(Composite)
        inputs, _, output = self._graph()
        op.inputs, op.outputs = inputs, [output]
        op.inputs_type, op.outputs_type = tuple([var.type for var in inputs]), (output.type,)
        op.nin, op.nout = len(inputs), 1
        op.fgraph = self._function_graph()
        op.name = None
        op.prepare_node_called = set()
        return op

    def _function_graph(self) -> FunctionGraph:
        inputs, nodes, output = self._graph()
        fgraph = FunctionGraph(inputs, [], clone=False)
        for node in nodes:
            import_one(fgraph, node, "init")
        fgraph.outputs.append(output)
        output.clients.append(("output", 0))
        return fgraph

    def _graph(self) -> tuple[list[Variable], list[Apply], Variable]:
        values = [get_scalar_type(dtype).make_variable() for dtype in self._dtypes]
        nodes = [
            new_node(op, [values[i] for i in slots], [values[slot]]) for (op, slots), slot in self._slot_of.items()
        ]
        return values[: self._count], nodes, values[self._last]


def _makes_plain_nodes(op: Any) -> bool:
    """Return whether the ``make_node`` of a scalar op makes a node of the op itself, with unchanged inputs."""
    return type(op).make_node in (ScalarOp.make_node, Abs.make_node)


def _scalar_like(var: Variable) -> Variable:
    """Return a scalar like `var`; its test value, if enabled, is the first element of the test value of `var`, or 0."""
    scalar = get_scalar_type(var.type.dtype).make_variable()
    if config.compute_test_value == "off":
        return scalar
    try:
        value = get_test_value(var)
    except AttributeError:  # there is no test value
        return scalar
    scalar.tag.test_value = value.flatten()[0] if value.size else np.zeros((), var.type.dtype)[()]
    return scalar


def _apply(op: Any, inputs: Sequence[Variable]) -> Variable:
    """Apply a scalar op with one output; a Composite is expanded."""
    if not isinstance(op, Composite):
        return op(*inputs, return_list=True)[0]
    replacements = dict(zip(op.inputs, inputs, strict=True))
    for node in io_toposort(op.inputs, op.outputs):
        outputs = node.op(*[replacements.get(var, var) for var in node.inputs], return_list=True)
        replacements.update(zip(node.outputs, outputs, strict=True))
    return replacements[op.outputs[0]]


def forget() -> None:
    """Clear the cache of ops with C code."""
    has_c_code.cache_clear()


@functools.lru_cache(maxsize=256)
def has_c_code(op: Any, dtypes: tuple[str, ...], output_dtype: str) -> bool:
    """Return whether a scalar op with one output has C code for these dtypes."""
    inputs = [get_scalar_type(dtype).make_variable() for dtype in dtypes]
    if _makes_plain_nodes(op):
        node = Apply(op, inputs, [get_scalar_type(output_dtype).make_variable()])
    else:
        with without_test_values():
            node = op(*inputs, return_list=True)[0].owner
    made: Any = node.op
    names = ["x"] * len(node.inputs), ["z"] * len(node.outputs)
    try:
        made.c_code(node, "test_presence_of_c_code", *names, {"fail": "%(fail)s"})
    except (MethodNotDefined, NotImplementedError):
        return False
    return True
