"""A linker that computes graphs with NumPy, so that values can be checked without waiting for a C compiler.

Fused elementwise graphs are applied to whole arrays, and this linker also runs the inner functions of Scan. An op is
only compiled if its Python code is missing or fails with current NumPy. In-place nodes overwrite their inputs, so that
an optimizer that destroys a value too early is detected.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from theano import scalar
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, Constant, Variable
from theano.gof.link import Container, LocalLinker, add_clear_storage, map_storage, raise_with_op
from theano.gof.op import Op, PureOp
from theano.scalar.basic import Cast, Composite, ScalarOp
from theano.scan_module.scan_op import Scan
from theano.tensor.elemwise import Elemwise
from theano.tensor.signal.pool import DownsampleFactorMaxGradGrad, MaxPoolRop, Pool, PoolGrad

Arrays = Sequence[np.ndarray]

UFUNC_LIMIT = 31
"""NumPy's limit on the inputs of a function made by `np.frompyfunc`."""


class Interpreter(LocalLinker):
    """Runs all nodes of a graph in order; intermediate values, which are small, are kept until the next call."""

    allow_gc = False

    def __init__(self) -> None:
        self.fgraph: FunctionGraph | None = None

    def clone(self, allow_gc: bool | None = False) -> Interpreter:
        """Return an unbound linker of the same kind."""
        return Interpreter()

    def accept(self, fgraph: FunctionGraph, no_recycling: object = None, profile: object = None) -> Interpreter:
        """Return a linker bound to `fgraph`."""
        linker = self.clone()
        linker.fgraph = fgraph
        return linker

    def make_all(
        self, input_storage: list | None = None, output_storage: list | None = None, storage_map: dict | None = None
    ) -> tuple[Callable[[], None], list[Container], list[Container], list[Any], list[Apply]]:
        """Build the thunks, as `LocalLinker` asks for."""
        graph = self.fgraph
        assert graph is not None  # set by `accept`
        order = self.schedule(graph)
        inputs, outputs, storage = map_storage(graph, order, input_storage, output_storage, storage_map)
        computed = {variable: [variable.owner is None] for variable in storage}
        thunks = [make_thunk(node, storage, computed) for node in order]
        flags = [[computed[output] for output in node.outputs] for node in order]
        results = [storage[output] for node in order for output in node.outputs]

        def run() -> None:
            # Clear the outputs, because ops may overwrite the arrays in them, which may belong to shared variables.
            for cell in results:
                cell[0] = None
            for node, thunk, outputs_computed in zip(order, thunks, flags):
                try:
                    thunk()
                except Exception:
                    raise_with_op(node, thunk)
                # Lazy ops check whether the branch that they select has been computed.
                for flag in outputs_computed:
                    flag[0] = True

        # Theano reads these attributes of the function.
        function: Any = run
        function.allow_gc = False
        function.storage_map = storage
        add_clear_storage(run, [output for node in order for output in node.outputs], storage)
        return (
            run,
            [Container(variable, cell) for variable, cell in zip(graph.inputs, inputs)],
            [Container(variable, cell, True) for variable, cell in zip(graph.outputs, outputs)],
            thunks,
            order,
        )


def make_thunk(node: Apply, storage: dict, computed: dict) -> Any:
    """Return a function that computes one node, and that has the attributes of Theano's thunks.

    `storage` maps a variable to a one-element list with its value, and `computed` maps it to a one-element list that
    says whether the value has been computed.
    """
    op = node.op
    thunk: Any
    if isinstance(op, Elemwise):
        thunk = _elementwise(op, node, storage)
    elif isinstance(op, Scan):
        thunk = _interpreted(op).make_thunk(node, storage, computed, [], impl="py")
    else:
        thunk = op.make_thunk(node, storage, computed, [], impl="c" if works_only_in_c(op) else "py")
    thunk.inputs = [storage[variable] for variable in node.inputs]
    thunk.outputs = [storage[variable] for variable in node.outputs]
    return thunk


def works_only_in_c(op: PureOp) -> bool:
    """Return whether an op's Python code is missing, or fails with current NumPy."""
    if isinstance(op, (Pool, PoolGrad, DownsampleFactorMaxGradGrad, MaxPoolRop)):
        # The Python code of these ops indexes with lists of slices, which NumPy 1.23 no longer accepts.
        return True
    return type(op).make_thunk is Op.make_thunk and type(op).perform is PureOp.perform


def _interpreted(op: Scan) -> Scan:
    """Return a copy of a loop whose inner function is optimized as before, but is run by this linker."""
    loop = copy.copy(op)
    loop.mode_instance = copy.copy(op.mode_instance)
    loop.mode_instance.linker = Interpreter()
    # Without this, an inner function that was compiled earlier would be reused.
    vars(loop).pop("fn", None)
    return loop


def _elementwise(op: Elemwise, node: Apply, storage: dict) -> Callable[[], None]:
    overwritten = op.inplace_pattern
    sources = [storage[variable] for variable in node.inputs]
    targets = [storage[variable] for variable in node.outputs]
    dtypes = [variable.type.dtype for variable in node.outputs]
    compute = vectorize(op.scalar_op, len(node.inputs), dtypes)

    def thunk() -> None:
        values = [source[0] for source in sources]
        shape = np.broadcast_shapes(*(value.shape for value in values))
        # Compute all results before the first input is overwritten.
        results = [
            np.array(np.broadcast_to(result, shape), dtype=dtype) for result, dtype in zip(compute(values), dtypes)
        ]
        for position, (target, result) in enumerate(zip(targets, results)):
            if position in overwritten:
                destroyed = values[overwritten[position]]
                destroyed[...] = result
                result = destroyed
            target[0] = result

    return thunk


def vectorize(op: ScalarOp, arity: int, outputs: list[str]) -> Callable[[Arrays], list]:
    """Return a function that applies a scalar op to a list of arrays; the results have the dtypes `outputs`."""
    if isinstance(op, Composite):
        return _composite(op)
    function = _function_of_arrays(op, arity)

    def compute(values: Arrays) -> list:
        # Without this, NumPy would convert small integers to half precision, and often ignore the dtypes of scalars.
        common = np.result_type(*(value.dtype for value in values), *outputs)
        results = function(*(value.astype(common, copy=False) for value in values))
        results = results if len(outputs) > 1 else [results]
        return [np.asarray(result).astype(name, copy=False) for result, name in zip(results, outputs)]

    return compute


def _composite(op: Composite) -> Callable[[Arrays], list]:
    graph = op.fgraph
    steps = []
    for node in graph.toposort():
        assert isinstance(node.op, ScalarOp)  # all nodes in a Composite have scalar ops
        steps.append((node, vectorize(node.op, len(node.inputs), [v.type.dtype for v in node.outputs])))

    def compute(values: Arrays) -> list:
        known = dict(zip(graph.inputs, values))

        def value(variable: Variable) -> np.ndarray:
            if variable in known:
                return known[variable]
            assert isinstance(variable, Constant)  # the graph has no other inputs
            return np.asarray(variable.data, dtype=variable.type.dtype)

        for node, step in steps:
            known.update(zip(node.outputs, step([value(variable) for variable in node.inputs])))
        return [value(variable) for variable in graph.outputs]

    return compute


def _function_of_arrays(op: ScalarOp, arity: int) -> Callable:
    if isinstance(op, Cast):
        return lambda value: value
    if isinstance(op, (scalar.basic.Add, scalar.basic.Mul)):
        binary = np.add if isinstance(op, scalar.basic.Add) else np.multiply
        return lambda *values: functools.reduce(binary, values)
    spec = getattr(op, "nfunc_spec", None)
    if spec and spec[1] == arity:
        return _by_name(spec[0])
    if arity > UFUNC_LIMIT:
        raise NotImplementedError(f"{op} takes {arity} inputs, more than NumPy allows")
    return np.frompyfunc(op.impl, arity, op.nout)


def _by_name(name: str) -> Callable:
    """Return the function with a dotted name; a name without dots means a function of NumPy."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module) if module else np, attribute)
