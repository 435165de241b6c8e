"""The memory that the values of a call need at each node, from liveness analysis.

The sizes of values come from Theano's symbolic shapes, evaluated for the shapes of the call's inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from theano.compile.function_module import Function
from theano.compile.ops import Shape, Shape_i
from theano.compile.sharedvalue import SharedVariable
from theano.gof.graph import Apply, Constant, Variable
from theano.scalar import Scalar
from theano.tensor import TensorType

from optdb.host.api.slots import viewed_slots
from optdb.numpy_types import HostArray

_MAX_ELEMENTS = 16


@dataclass(frozen=True)
class InputValue:
    """An input's shape and size in bytes, and the input's value if this value may be a length of another array."""

    shape: tuple[int, ...] | None
    nbytes: int
    value: HostArray | None

    @staticmethod
    def of(value: Any) -> InputValue:
        """Return the recorded properties of a value."""
        shape = getattr(value, "shape", None)
        is_array = isinstance(value, (np.ndarray, np.generic))
        may_be_length = is_array and value.dtype.kind in "iub" and value.size <= _MAX_ELEMENTS
        kept = np.array(value) if may_be_length else None
        return InputValue(shape, int(getattr(value, "nbytes", 0)), kept)


@dataclass(frozen=True)
class CallMemory:
    """The memory that one call uses, in bytes.

    Parameters
    ----------
    steps : sequence of (Apply, int)
        The nodes in execution order, each with the bytes of all live values.
    arguments, shared, constants : int
        Bytes that are not included in `steps`.
    unknown : int
        The number of node outputs that are left out because their sizes are unknown.
    buffers : int or None
        The bytes of the buffers assigned to values on a device; None on the host.
    separately : int
        The total bytes of all values if no two values shared memory.
    """

    steps: Sequence[tuple[Apply, int]]
    arguments: int
    shared: int
    constants: int
    unknown: int
    separately: int
    buffers: int | None = None

    @property
    def peak(self) -> int:
        """The maximum number of bytes that are live at any node."""
        return max((nbytes for _, nbytes in self.steps), default=0)


def call_memory(function: Function, inputs: Mapping[Variable, InputValue]) -> CallMemory:
    """Return the memory that a call needs on the host, excluding memory that ops allocate internally."""
    fgraph = function.maker.fgraph
    order = getattr(function.fn, "nodes", None) or fgraph.toposort()
    lengths = _Lengths(fgraph, inputs)
    sizes = {out: lengths.nbytes(out) for node in order for out in node.outputs}
    frees = getattr(function.maker.linker, "allow_gc", True)
    live, separately = live_bytes(order, fgraph.outputs, sizes, frees)
    shared_inputs = {var for var, spec in zip(fgraph.inputs, function.maker.expanded_inputs) if _is_shared(spec)}
    constants = {var for node in order for var in node.inputs if isinstance(var, Constant)}
    return CallMemory(
        steps=list(zip(order, live, strict=True)),
        arguments=sum(value.nbytes for var, value in inputs.items() if var not in shared_inputs),
        shared=sum(value.nbytes for var, value in inputs.items() if var in shared_inputs),
        constants=sum(int(getattr(var.data, "nbytes", 0)) for var in constants),
        unknown=sum(size is None for size in sizes.values()),
        separately=separately,
    )


def _is_shared(spec: Any) -> bool:
    return isinstance(getattr(spec, "variable", None), SharedVariable)


def live_bytes(
    order: Sequence[Apply], outputs: Iterable[Variable], sizes: Mapping[Variable, int | None], frees: bool = True
) -> tuple[list[int], int]:
    """Return the live bytes at each node, and the total bytes of all values; views count as part of their inputs.

    An unknown size is None, and counts as 0. If `frees` is False, every value stays alive until the last node.
    """
    owner_of: dict[Variable, Variable] = {}
    begins: dict[Variable, int] = {}
    ends: dict[Variable, int] = {}

    for number, node in enumerate(order):
        for var in node.inputs:
            memory = owner_of.get(var, var)
            if memory in begins:
                ends[memory] = number
        aliases = {out: node.inputs[slot] for out, slot in _alias_slots(node)}
        for out in node.outputs:
            if out in aliases:
                owner_of[out] = owner_of.get(aliases[out], aliases[out])
            else:
                begins[out] = ends[out] = number
    kept = {owner_of.get(var, var) for var in outputs}
    change = [0] * (len(order) + 1)
    for memory, begin in begins.items():
        end = len(order) - 1 if memory in kept or not frees else ends[memory]
        change[begin] += sizes[memory] or 0
        change[end + 1] -= sizes[memory] or 0
    live: list[int] = []
    for number in range(len(order)):
        live.append(change[number] + (live[-1] if live else 0))
    return live, sum(sizes[memory] or 0 for memory in begins)


def _alias_slots(node: Apply) -> list[tuple[Variable, int]]:
    """Return the outputs that share memory with an input, each with the index of that input."""
    written = getattr(node.op, "destroy_map", None) or {}
    over = [(node.outputs[number], slots[0]) for number, slots in written.items() if slots]
    return [*over, *viewed_slots(node)]


class _NotKnown(Exception):
    pass


class _Lengths:
    def __init__(self, fgraph: Any, inputs: Mapping[Variable, InputValue]) -> None:
        self._inputs = inputs
        feature = getattr(fgraph, "shape_feature", None)
        self._shape_of: Mapping[Variable, Any] = {} if feature is None else feature.shape_of
        self._values: dict[Variable, HostArray | None] = {}

    def nbytes(self, var: Variable) -> int | None:
        if not isinstance(var.type, TensorType):
            return None
        try:
            shape = self.shape(var)
        except _NotKnown:
            return None
        return math.prod(shape) * np.dtype(var.type.dtype).itemsize

    def shape(self, var: Variable) -> tuple[int, ...]:
        if var.type.ndim == 0:
            return ()
        known = self._inputs.get(var)
        if known is not None and known.shape is not None:
            return known.shape
        if isinstance(var, Constant):
            return var.data.shape
        lengths = self._shape_of.get(var)
        if lengths is None:
            raise _NotKnown
        return tuple(int(self._value(length)) for length in lengths)

    def _value(self, var: Variable) -> HostArray:
        """Return the value of an integer variable, computed from lengths, constants and small inputs."""
        waiting = [var]
        while waiting:
            current = waiting[-1]
            if current in self._values:
                waiting.pop()
                continue
            missing = [needed for needed in self._needed(current) if needed not in self._values]
            if missing:
                waiting += missing
                continue
            self._values[current] = self._computed(current)
            waiting.pop()
        value = self._values[var]
        if value is None:
            raise _NotKnown
        return value

    def _needed(self, var: Variable) -> list[Variable]:
        node = var.owner
        if node is None or not _may_be_length(var) or isinstance(node.op, (Shape, Shape_i)):
            return []
        return node.inputs

    def _computed(self, var: Variable) -> HostArray | None:
        """Return a variable's value if it can be computed, else None."""
        if isinstance(var, Constant):
            return np.asarray(var.data) if var.data is not None and _may_be_length(var) else None
        if var in self._inputs:
            return self._inputs[var].value
        node = var.owner
        if node is None or not _may_be_length(var):
            return None
        if isinstance(node.op, (Shape, Shape_i)):
            return self._length_of_input(node)
        values = [value for needed in node.inputs if (value := self._values[needed]) is not None]
        if len(values) < len(node.inputs):
            return None
        return _performed(node, values, node.outputs.index(var))

    def _length_of_input(self, node: Apply) -> HostArray | None:
        [source] = node.inputs
        known = self._inputs.get(source)
        shape = known.shape if known is not None else getattr(getattr(source, "data", None), "shape", None)
        if shape is None:
            return None
        return np.asarray(shape[node.op.i] if isinstance(node.op, Shape_i) else shape)


def _may_be_length(var: Variable) -> bool:
    is_number = isinstance(var.type, (TensorType, Scalar))
    return is_number and getattr(var.type, "ndim", 0) <= 1 and np.dtype(var.type.dtype).kind in "iub"


def _performed(node: Apply, values: Sequence[np.ndarray], number: int) -> HostArray | None:
    """Compute one output of a node from integers; return None if the op rejects them."""
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    perform: Callable[..., Any] = node.op.perform
    inputs = [np.array(value, dtype=var.type.dtype) for var, value in zip(node.inputs, values, strict=True)]
    try:
        perform(node, inputs, storage)
    except Exception:
        # Ignore the error here, because the call itself will raise it.
        return None
    return np.asarray(storage[number][0])
