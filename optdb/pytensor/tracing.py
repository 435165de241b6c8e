"""Walks a graph of PyTensor, and describes what it computes for the arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from optdb.codegen.functions import tensors
from optdb.codegen.functions.function import FunctionTracer, HostValue, Value
from optdb.codegen.functions.tensors import Tensor
from optdb.codegen.scalars.types import NoCode
from optdb.numpy_types import HostArray
from optdb.pytensor.dispatch import OnHost, described

#: Constants of at most so many elements are computed with on the host, while a call is traced.
_FOLDED_ELEMENTS = 64


class _HostConstant(HostValue):
    """A constant that is no array."""

    def __init__(self, value: Any) -> None:
        super().__init__(-1)
        self.value = value


class DtypeNotOnDevice(TypeError):
    """The device does not have a dtype of a graph."""


class GraphTrace:
    """One call that is traced: the values of variables, and what the host knows of them."""

    def __init__(self, tracer: FunctionTracer, fgraph: FunctionGraph) -> None:
        self.tracer = tracer
        self.context = tracer.context
        #: Why nodes are left to the host, by node.
        self.on_host: dict[Apply, str] = {}
        self.indices: dict[tuple[Tensor, int], Tensor] = {}
        self._inputs = {var: position for position, var in enumerate(fgraph.inputs)}
        self._values: dict[Variable, Value] = dict(zip(fgraph.inputs, tracer.arguments, strict=True))
        #: For inputs of inner graphs, the variables that are given.
        self._given: dict[Variable, Variable] = {}
        self._known: dict[Variable, HostArray | None] = {}

    def outputs(self, fgraph: FunctionGraph) -> list[Value]:
        """Return the outputs of the function's graph."""
        for node in fgraph.toposort():
            self._describe(node)
        return [self.value(var) for var in fgraph.outputs]

    def inner(self, fgraph: Any, node: Apply) -> list[Value]:
        """Return the outputs of a graph within a node, for the node's inputs."""
        given = dict(zip(fgraph.inputs, node.inputs, strict=True))
        # One inner graph may be in several nodes: what was computed of its variables is forgotten.
        nodes = list(io_toposort(fgraph.inputs, fgraph.outputs))
        for var in [*fgraph.inputs, *(out for inner in nodes for out in inner.outputs)]:
            self._values.pop(var, None)
            self._known.pop(var, None)
        for var, outer in given.items():
            self._values[var] = self.value(outer)
            self._given[var] = outer
        for inner in nodes:
            self._describe(inner)
        return [self.value(var) for var in fgraph.outputs]

    def value(self, var: Variable) -> Value:
        """Return the value of a variable."""
        if var not in self._values:
            if not isinstance(var, Constant):
                raise KeyError(f"{var} is not computed yet")
            self._values[var] = self._constant(var)
        return self._values[var]

    def _constant(self, var: Constant) -> Value:
        if not is_array(var):
            return _HostConstant(var.data)
        self._require(var.type.dtype)
        return tensors.Constant(np.asarray(var.data, var.type.dtype))

    def concrete(self, var: Variable) -> HostArray:
        """Return the value that a variable has in this call; later calls have to have the same."""
        value = self.value(var)
        if not isinstance(value, Tensor):
            raise OnHost(f"{var} is no array")
        known = self._on_host(var, {})
        return self.tracer.concrete(value) if known is None else known

    def numbers(self, variables: Sequence[Variable]) -> tuple[int, ...]:
        """Return the values of variables that are whole numbers."""
        return tuple(int(self.concrete(var)) for var in variables)

    def _on_host(self, var: Variable, seen: dict[Variable, HostArray | None]) -> HostArray | None:
        """Return the value of a variable that the host can compute from lengths and small arguments, else None."""
        if var in seen:
            return seen[var]
        value = self._values.get(var) if not isinstance(var, Constant) else self.value(var)
        if isinstance(value, tensors.Constant):
            return value.value
        seen[var] = None
        if var in self._given:
            seen[var] = self._on_host(self._given[var], seen)
        elif var in self._inputs:
            if isinstance(value, Tensor) and value.size <= _FOLDED_ELEMENTS and value.dtype[0] in "iub":
                seen[var] = self.tracer.argument_value(self._inputs[var])
        elif var.owner is not None and len(seen) < 100 and all(map(is_array, var.owner.inputs)):
            inputs = [self._on_host(x, seen) for x in var.owner.inputs]
            if all(x is not None for x in inputs):
                results = computed_by_host(var.owner, inputs)
                seen[var] = np.asarray(results[var.owner.outputs.index(var)], var.type.dtype)
        return seen[var]

    def _require(self, dtype: str) -> None:
        reason = self.context.unsupported_reason(dtype)
        if reason is not None:
            cure = (
                "; the cure: pytensor.config.floatX = 'float32' before the model is built" if "double" in reason else ""
            )
            raise DtypeNotOnDevice(f"{dtype} is in this graph, and {reason}{cure}")

    def _describe(self, node: Apply) -> None:
        inputs = [self.value(var) for var in node.inputs]
        outputs = self._folded(node, inputs)
        if outputs is None:
            try:
                outputs = described(node.op, node, inputs, self)
            except (OnHost, NoCode) as reason:
                self.on_host[node] = str(reason)
                outputs = self._left_to_host(node, inputs)
        for var, value in zip(node.outputs, outputs, strict=True):
            if isinstance(value, Tensor) and is_array(var):
                self._require(value.dtype)
                if value.dtype != var.type.dtype or value.ndim != var.type.ndim:
                    raise AssertionError(f"{node.op} was described as {value}, and its output is {var.type}")
            self._values[var] = value

    def _folded(self, node: Apply, inputs: Sequence[Value]) -> list[Value] | None:
        """Return the outputs of a node whose inputs are small constants."""
        constants = [x for x in inputs if isinstance(x, tensors.Constant) and x.size <= _FOLDED_ELEMENTS]
        if len(constants) < len(inputs) or not inputs or not folds(node):
            return None
        results = computed_by_host(node, [x.value.copy() for x in constants])
        return [
            tensors.Constant(np.asarray(result, var.type.dtype))
            for var, result in zip(node.outputs, results, strict=True)
        ]

    def _left_to_host(self, node: Apply, inputs: Sequence[Value]) -> list[Value]:
        given = [x for x in inputs if not isinstance(x, _HostConstant)]

        def compute(values: list[Any]) -> list[Any]:
            rest = iter(values)
            full = [x.value if isinstance(x, _HostConstant) else next(rest) for x in inputs]
            full = [x.copy() if isinstance(x, np.ndarray) else x for x in full] if node.op.destroy_map else full
            results = computed_by_host(node, full)
            return [
                np.asarray(result, var.type.dtype) if is_array(var) else result
                for var, result in zip(node.outputs, results, strict=True)
            ]

        return self.tracer.on_host(str(node.op), compute, given)


def is_array(var: Variable) -> bool:
    """Tell whether a variable is an array, or a number."""
    return isinstance(var.type, DenseTensorType | ScalarType)


#: Ops whose results are large, though their inputs are small.
_SPREADING = frozenset({"Alloc", "AllocEmpty", "ARange", "Eye"})


def folds(node: Apply) -> bool:
    """Tell whether a node of small constants is computed on the host while a call is traced."""
    if type(node.op).__name__ in _SPREADING or not all(map(is_array, (*node.inputs, *node.outputs))):
        return False
    return type(node.op).__module__.startswith("pytensor.") and not hasattr(node.op, "inner_inputs")


def computed_by_host(node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """Return what a node computes of values, by PyTensor's own implementation in Python."""
    storage_map = {var: [value] for var, value in zip(node.inputs, inputs, strict=True)}
    storage_map |= {var: [None] for var in node.outputs}
    compute_map = {var: [True] for var in node.inputs} | {var: [False] for var in node.outputs}
    thunk = node.op.make_thunk(node, storage_map, compute_map, [], impl="py")
    thunk()
    return [storage_map[var][0] for var in node.outputs]
