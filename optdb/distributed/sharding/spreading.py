"""Builds one worker's graph from the user's graph, op by op (`Spreader`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.collective import AllReduce, MergeMoments
from optdb.distributed.sharding.layouts import (
    Length,
    Own,
    Partial,
    Replicated,
    RowNumbers,
    Sharded,
    Value,
    Vector,
    array_of,
)
from optdb.host.api.graph import Apply, Constant, Op, Variable, io_toposort
from optdb.host.api.scalars import Second
from optdb.host.api.variables import TensorVariable
from optdb.host.theano.functions.originals import tensor

Rule = Callable[["Spreader", Apply, list[Value]], list[Value]]

#: Maps op classes to rules, which the modules in `rules` register.
RULES: dict[type, Rule] = {}


def rule(*classes: type) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule for the given op classes.

    The function takes the spreader, a node and the values of its inputs, at least one of which is not `Replicated`. The
    function returns the values of the outputs, or raises `NotSplittable`.
    """

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(classes, function))
        return function

    return enter


class Spreader:
    """Builds one worker's graph; `splits` maps the split inputs to axes.

    `length` and `first` are int64 inputs of this graph: the length of the batch, and the index of the worker's first
    row. If `splits` is empty, as for a loop's inner graph, `own_length` must be given.
    """

    def __init__(
        self,
        splits: Mapping[Variable, int],
        length: TensorVariable,
        first: TensorVariable,
        own_statistics: bool = False,
        in_loop: bool = False,
        own_length: TensorVariable | None = None,
    ) -> None:
        self.length = length
        self.first = first
        self.own_statistics = own_statistics
        self.in_loop = in_loop
        self.values: dict[Variable, Value] = {var: Sharded(var, axis) for var, axis in splits.items()}
        self._wholes: dict[Variable, Variable] = {}
        self._merges = 0
        self._own_length = next((array_of(var).shape[axis] for var, axis in splits.items()), own_length)

    @property
    def own_length(self) -> TensorVariable:
        """The length of the worker's part."""
        assert self._own_length is not None, "no input is split"
        return self._own_length

    def spread(self, outputs: Sequence[Variable]) -> list[Value]:
        """Return the values of variables in the user's graph; raise `NotSplittable` if that is not possible."""
        for node in io_toposort(list(self.values), list(outputs)):
            if not all(out in self.values for out in node.outputs):
                values = self.follow(node, [self.value(var) for var in node.inputs])
                self.values.update(zip(node.outputs, values, strict=True))
        return [self.value(var) for var in outputs]

    def value(self, var: Variable) -> Value:
        """Return the value of a variable; its node must have been visited."""
        if var not in self.values:
            self.values[var] = Replicated(var, is_zero(var))
        return self.values[var]

    def follow(self, node: Apply, inputs: list[Value]) -> list[Value]:
        """Return the values of a node's outputs, given the values of its inputs."""
        # A fill depends only on the shape of its first input, so it must not wait for that input's elements.
        fills = isinstance(getattr(node.op, "scalar_op", None), Second)
        if all(isinstance(value, Replicated) and not value.zero for value in inputs) and not fills:
            return list(map(Replicated, remade(node, inputs)))
        found = next((RULES[cls] for cls in type(node.op).__mro__ if cls in RULES), None)
        if found is not None:
            return found(self, node, inputs)
        if all(isinstance(value, Replicated) for value in inputs):
            return list(map(Replicated, remade(node, inputs)))
        if not any(isinstance(value, Sharded | Own | RowNumbers) for value in inputs):
            return self.replicated(node, inputs)
        raise NotSplittable(node, "this op has no rule for parts of a batch")

    def apply(self, op: Op, *inputs: Value) -> Value:
        """Apply an op to values, and return the value of its first output."""
        node = op.make_node(*(value.var for value in inputs))
        return self.follow(node, list(inputs))[0]

    def whole(self, value: Value, node: Apply | None) -> Replicated:
        """Return the value for the whole batch, which `node` needs; a `Partial` value is summed up over all workers."""
        if isinstance(value, Replicated):
            return value
        if isinstance(value, Length):
            return Replicated(value.whole)
        if isinstance(value, Vector):
            if all(isinstance(entry, Replicated) for entry in value.entries):
                return Replicated(value.var)
            return Replicated(tensor.stack([self.whole(entry, node).var for entry in value.entries]))
        if not isinstance(value, Partial):
            raise NotSplittable(node, f"it needs all rows of {value.var}, but each worker has a part of them")
        if self.in_loop:
            raise NotSplittable(node, f"it needs the sum of {value.var} over all workers in each step of a loop")
        if value.var not in self._wholes:
            self._wholes[value.var] = AllReduce(len(self._wholes))(value.var)
        return Replicated(self._wholes[value.var])

    def wholes(self, values: Sequence[Value], node: Apply) -> list[Value]:
        """Return the values for the whole batch; see `whole`."""
        return [self.whole(value, node) for value in values]

    def replicated(self, node: Apply, inputs: Sequence[Value]) -> list[Value]:
        """Return a node's outputs, which each worker computes from whole values."""
        return list(map(Replicated, remade(node, self.wholes(inputs, node))))

    def moments(self, node: Apply, count: Variable, own: Variable) -> TensorVariable:
        """Return the means and variances that a node needs, computed over all workers; see `MergeMoments`."""
        if self.in_loop:
            raise NotSplittable(node, f"it needs {own} of all workers in each step of a loop")
        self._merges += 1
        return array_of(MergeMoments(self._merges)(count, own))

    def own_rows(self, var: Variable, layout: Sharded, node: Apply) -> Variable:
        """Return this worker's rows of an array that has the rows of the whole batch."""
        if self.in_loop or not layout.unit or layout.interleaved:
            raise NotSplittable(
                node, f"{var} has the rows of the whole batch. If it is an input, split it as well, by axes="
            )
        rows = slice(self.first, self.first + self.own_length)
        return array_of(array_of(var)[(*[slice(None)] * layout.axis, rows)])

    def length_along(self, value: Sharded, axis: int) -> Value:
        """Return the length of a split array along an axis, as a `Value`."""
        own = value.array.shape[axis]
        if axis != value.axis:
            return Replicated(own)
        whole = self.length if value.unit else own // self.own_length * self.length
        return Length(own, whole, value.unit)


def remade(node: Apply, inputs: Sequence[Value]) -> list[Variable]:
    """Return the outputs of a copy of a node with new inputs, or the node's own outputs if no input is new."""
    variables = [value.var for value in inputs]
    if all(new is old for new, old in zip(variables, node.inputs, strict=True)):
        return node.outputs
    typed = [old.type.filter_variable(new) for new, old in zip(variables, node.inputs, strict=True)]
    outputs = node.clone_with_new_inputs(typed).outputs
    for old, new in zip(node.outputs, outputs, strict=True):
        new.name = old.name
        new.tag.trace = getattr(old.tag, "trace", [])
    return outputs


def is_zero(var: Variable) -> bool:
    """Return whether a variable is a constant whose elements are all zero."""
    data: Any = getattr(var, "data", None) if isinstance(var, Constant) else None
    return data is not None and hasattr(data, "dtype") and data.dtype.kind in "biufc" and not data.any()
