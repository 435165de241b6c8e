"""Traces a PyTensor graph for the arguments of a call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import io_toposort

from optdb.codegen.scalars.types import NoCode
from optdb.device import tensors
from optdb.device.export.numbers import NotFollowed
from optdb.device.functions.host_parts import HostValue, Value
from optdb.device.functions.tracer import FunctionTracer, Retrace
from optdb.device.tensors import Tensor
from optdb.pytensor.dispatch import OnHost, described, is_array, of_lengths
from optdb.pytensor.host_groups import HostGroup, HostNodes
from optdb.runtime.sizes import as_int, example_value

#: Nodes are folded during tracing if all their inputs are constants of at most this many elements.
_FOLDED_ELEMENTS = 64
#: The maximum number of elements for which a node takes less time on the host than a round trip to the device takes.
_SMALL_ELEMENTS = 4096


#: A tensor whose value is known on the host.
Known = tensors.Constant | tensors.Lengths


class _HostConstant(HostValue):
    """A constant that is not an array."""

    def __init__(self, value: Any) -> None:
        super().__init__(-1)
        self.value = value


class DtypeNotOnDevice(TypeError):
    """Raised if the device does not support a dtype in a graph."""


class GraphTrace:
    """The trace of one call: the variables' tensors and, if known, their values on the host."""

    def __init__(
        self,
        tracer: FunctionTracer,
        fgraph: FunctionGraph,
        host: HostNodes,
        values: Sequence[Value] | None = None,
        draws_on_device: bool = False,
    ) -> None:
        self.tracer = tracer
        #: Whether the device also draws the random variables for which PyTensor uses rejection sampling; their values
        #: then differ from PyTensor's.
        self.draws_on_device = draws_on_device
        self.context = tracer.context
        self.host = host
        #: The variables that host groups have computed.
        self._from_host: set[Variable] = set()
        #: Whether the host computes the whole function if it computes any part of it.
        self._is_for_host = False
        #: Maps constant indices and an axis length to equivalent indices without negative elements, so that gathers and
        #: their gradients share one array of indices.
        self.indices: dict[tuple[Tensor, int], Tensor] = {}
        self._inputs = {var: position for position, var in enumerate(fgraph.inputs)}
        given = tracer.arguments if values is None else values
        self._values: dict[Variable, Value] = dict(zip(fgraph.inputs, given, strict=True))

    def outputs(self, fgraph: FunctionGraph) -> list[Value]:
        nodes = fgraph.toposort()
        self._is_for_host = self.host.compiles and all(map(self._is_small, nodes))
        if self._is_for_host and any(map(self.host.includes, nodes)):
            self._compute_on_host(self.host.group(nodes, nodes, fgraph.outputs))
            return [self.value(var) for var in fgraph.outputs]
        return self._computed(nodes, fgraph.outputs)

    def inner(self, fgraph: Any, node: Apply) -> list[Value]:
        """Return the outputs of a node's inner graph for the node's inputs."""
        values = [self.value(var) for var in node.inputs]
        given = dict(zip(fgraph.inputs, node.inputs, strict=True))
        return InnerTrace(self, fgraph, values, given).results()

    def _computed(self, waiting: Sequence[Apply], results: Sequence[Variable]) -> list[Value]:
        """Trace nodes in topological order: as many as possible on the device before each host group."""
        while waiting := self._described(waiting):
            group = self.host.next_group(waiting, self._is_small, results)
            self._compute_on_host(group)
            done = set(group.nodes)
            waiting = [node for node in waiting if node not in done]
        return [self.value(var) for var in results]

    def _described(self, nodes: Sequence[Apply]) -> list[Apply]:
        """Trace nodes on the device; return the nodes that need the host, and their dependents."""
        waiting: list[Apply] = []
        blocked: set[Variable] = set()
        for node in nodes:
            if not blocked.isdisjoint(node.inputs) or not self._describe(node):
                waiting.append(node)
                blocked.update(node.outputs)
        return waiting

    def _is_small(self, node: Apply) -> bool:
        """Return whether all inputs and outputs of a node have few elements; unknown sizes count as small."""
        return max(map(self._size, (*node.inputs, *node.outputs)), default=0) <= _SMALL_ELEMENTS

    def _size(self, var: Variable) -> int:
        """Return a variable's number of elements; 0 if it is unknown."""
        value = self._values.get(var)
        if isinstance(value, Tensor):
            return int(example_value(value.size))
        if isinstance(var, Constant):
            return int(np.size(var.data))
        return 0 if not is_array(var) or None in var.type.shape else math.prod(var.type.shape)

    def value(self, var: Variable) -> Value:
        if var not in self._values:
            if not isinstance(var, Constant):
                raise KeyError(f"{var} is not computed yet")
            if is_array(var):
                self._require(var.type.dtype)
                self._values[var] = tensors.Constant(np.asarray(var.data, var.type.dtype))
            else:
                self._values[var] = _HostConstant(var.data)
        return self._values[var]

    def concrete(self, var: Variable) -> Any:
        """Return a variable's value; the trace is then valid only for calls in which it has the same value.

        During an export, integers that depend on lengths are a `SymInt` or a `SymIntVector`, which may differ.
        """
        value = self.value(var)
        if not isinstance(value, Tensor):
            raise OnHost(f"{var} is not an array")
        known = self._on_host(var, {})
        return self.tracer.concrete(value) if known is None else known.value

    def numbers(self, variables: Sequence[Variable]) -> tuple[int, ...]:
        return tuple(as_int(self.concrete(var)) for var in variables)

    def _on_host(self, var: Variable, seen: dict[Variable, Known | None]) -> Known | None:
        """Return a variable's value if the host can compute it from lengths and small arguments, else None."""
        if var in seen:
            return seen[var]
        value = self._values.get(var) if not isinstance(var, Constant) else self.value(var)
        if isinstance(value, Known):
            return value
        seen[var] = None
        if var in self._inputs:
            seen[var] = self._input_on_host(var, value)
        elif var.owner is not None and len(seen) < 100 and all(map(is_array, var.owner.inputs)):
            inputs = [self._on_host(x, seen) for x in var.owner.inputs]
            known = [x for x in inputs if x is not None]
            if len(known) == len(inputs):
                seen[var] = _known(var, known)
        return seen[var]

    def _input_on_host(self, var: Variable, value: Value | None) -> Known | None:
        """Return an input's value if the host knows it, else None."""
        if isinstance(value, Tensor) and value.size <= _FOLDED_ELEMENTS and value.dtype[0] in "iub":
            return tensors.Constant(self.tracer.argument_value(self._inputs[var]))
        return None

    def _require(self, dtype: str) -> None:
        reason = self.context.unsupported_reason(dtype)
        if reason is not None:
            cure = (
                "; the cure: pytensor.config.floatX = 'float32' before the model is built" if "double" in reason else ""
            )
            raise DtypeNotOnDevice(f"the graph contains {dtype}, but {reason}{cure}")

    def _describe(self, node: Apply) -> bool:
        inputs = [self.value(var) for var in node.inputs]
        outputs = self._folded(node, inputs)
        if outputs is None and self.host.includes(node):
            return False
        if outputs is None:
            try:
                outputs = described(node.op, node, inputs, self)
            except (OnHost, NoCode) as reason:
                self.host.reasons[node] = str(reason)
                if self._is_for_host or not self._from_host.isdisjoint(node.inputs):
                    # The group of all nodes, or the group that computed the inputs, should also contain this node, so
                    # trace again.
                    raise Retrace from None
                return False
        for var, value in zip(node.outputs, outputs, strict=True):
            self._set(var, value, node)
        return True

    def _set(self, var: Variable, value: Value, node: Apply) -> None:
        if isinstance(value, Tensor) and is_array(var):
            self._require(value.dtype)
            if value.dtype != var.type.dtype or value.ndim != var.type.ndim:
                raise AssertionError(f"{node.op} was described as {value}, but its output is {var.type}")
        self._values[var] = value

    def _folded(self, node: Apply, inputs: Sequence[Value]) -> list[Value] | None:
        """Return the outputs of a node whose inputs are small constants; None for other nodes."""
        known = [x for x in inputs if isinstance(x, Known) and x.size <= _FOLDED_ELEMENTS]
        if len(known) < len(inputs) or not inputs or not folds(node):
            return None
        constants = [x for x in known if isinstance(x, tensors.Constant)]
        if len(constants) < len(known):
            result = _of_lengths(node, known, may_guard=False)
            return None if result is None else [result]
        results = computed_by_host(node, [x.value.copy() for x in constants])
        of_lengths = any(x.of_lengths for x in constants)
        return [
            tensors.Constant(np.asarray(result, var.type.dtype), of_lengths)
            for var, result in zip(node.outputs, results, strict=True)
        ]

    def _compute_on_host(self, group: HostGroup) -> None:
        outputs = self.tracer.on_host(group, [self.value(var) for var in group.inputs])
        for var, value in zip(group.outputs, outputs, strict=True):
            self._set(var, value, var.owner)
            self._from_host.add(var)


class InnerTrace(GraphTrace):
    """The trace of a node's inner graph.

    `given` maps inputs of the inner graph to outer variables. By default, the tracer and the host nodes are those of
    the outer graph.
    """

    def __init__(
        self,
        outside: GraphTrace,
        fgraph: FunctionGraph,
        values: Sequence[Value],
        given: Mapping[Variable, Variable],
        tracer: Any = None,
        host: HostNodes | None = None,
    ) -> None:
        super().__init__(tracer or outside.tracer, fgraph, host or outside.host, values, outside.draws_on_device)
        self.indices = outside.indices
        self._is_for_host = outside._is_for_host and host is None
        self._fgraph = fgraph
        self._outside = outside
        self._given = given

    @property
    def nodes(self) -> list[Apply]:
        return list(io_toposort(self._fgraph.inputs, self._fgraph.outputs))

    def results(self) -> list[Value]:
        return self._computed(self.nodes, self._fgraph.outputs)

    def _input_on_host(self, var: Variable, value: Value | None) -> Known | None:
        return self._outside._on_host(self._given[var], {}) if var in self._given else None


def _known(var: Variable, inputs: Sequence[Known]) -> Known:
    """Return a variable's value, given the values of its node's inputs."""
    node = var.owner
    if any(isinstance(x, tensors.Lengths) for x in inputs):
        result = _of_lengths(node, inputs, may_guard=True)
        if isinstance(result, Known):
            return result
    arrays = [np.asarray(x.value, given.type.dtype) for x, given in zip(inputs, node.inputs, strict=True)]
    results = computed_by_host(node, arrays)
    return tensors.Constant(np.asarray(results[node.outputs.index(var)], var.type.dtype))


def _of_lengths(node: Apply, inputs: Sequence[Known], may_guard: bool) -> Tensor | None:
    try:
        return of_lengths(node.op, node, inputs, may_guard) if len(node.outputs) == 1 else None
    except NotFollowed:
        return None


#: Ops whose results may be large although their inputs are small.
_SPREADING = frozenset({"Alloc", "AllocEmpty", "ARange", "Eye"})


def folds(node: Apply) -> bool:
    """Return whether a node may be folded if its inputs are small constants."""
    if type(node.op).__name__ in _SPREADING or not all(map(is_array, (*node.inputs, *node.outputs))):
        return False
    return type(node.op).__module__.startswith("pytensor.") and not hasattr(node.op, "inner_inputs")


def computed_by_host(node: Apply, inputs: Sequence[Any]) -> list[Any]:
    """Return a node's outputs for given values, computed by PyTensor's Python code."""
    storage_map = {var: [value] for var, value in zip(node.inputs, inputs, strict=True)}
    storage_map |= {var: [None] for var in node.outputs}
    compute_map = {var: [True] for var in node.inputs} | {var: [False] for var in node.outputs}
    thunk = node.op.make_thunk(node, storage_map, compute_map, [], impl="py")
    thunk()
    return [storage_map[var][0] for var in node.outputs]
