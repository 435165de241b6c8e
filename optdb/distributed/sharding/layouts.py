"""Layouts, which describe how a value is distributed over workers, and predicates on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from optdb.distributed.errors import NotSplittable
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.variables import TensorType, TensorVariable


def array_of(var: Variable) -> TensorVariable:
    """Return the variable itself if it is an array; otherwise, raise an error."""
    assert isinstance(var.type, TensorType), f"{var} is not an array"
    array: Any = var
    return array


@dataclass(frozen=True)
class Value:
    """One worker's share of a value."""

    #: The variable in one worker's graph.
    var: Variable

    @property
    def array(self) -> TensorVariable:
        """The variable, typed as an array; it is an error if the variable is not an array."""
        return array_of(self.var)


@dataclass(frozen=True)
class Replicated(Value):
    """Each worker has the whole value."""

    #: Whether all elements are known to be zero or are uninitialized.
    zero: bool = False


@dataclass(frozen=True)
class Sharded(Value):
    """Along one axis, each worker has the rows of its part of the batch."""

    axis: int
    #: Whether there is exactly one row for each example.
    unit: bool = True
    #: Whether rows of different examples alternate, for example after a reshape of (time, batch) to one axis. If they
    #: do not alternate, the whole value is the concatenation of all workers' rows.
    interleaved: bool = False


@dataclass(frozen=True)
class Partial(Value):
    """Each worker has a summand; the whole value is the sum of all workers' summands."""


@dataclass(frozen=True)
class Own(Value):
    """A statistic of a worker's own part; it is not combined with the other workers' statistics."""


@dataclass(frozen=True)
class Length(Value):
    """An integer that depends on the length of a worker's part."""

    #: The integer's value for the whole batch, which is equal on all workers.
    whole: Variable
    #: Whether the integer is the length of the part itself.
    unit: bool = False
    #: Whether the integer is a multiple of the part's length, so that the worker's arrays can have the length `var`.
    linear: bool = True


@dataclass(frozen=True)
class Vector(Value):
    """A vector with a layout for each element."""

    entries: tuple[Value, ...] = field(default=())


@dataclass(frozen=True)
class RowNumbers(Value):
    """A worker's row numbers 0, 1, ..., which the graph may use only as row indices."""


def has(values: Sequence[Value], layout: type) -> bool:
    """Return whether any of the values has the given layout."""
    return any(isinstance(value, layout) for value in values)


def has_zeros(value: Value) -> bool:
    """Return whether all elements of a value are known to be zero."""
    return isinstance(value, Replicated) and value.zero


AnyValue = TypeVar("AnyValue", bound=Value)


def with_layout_of(value: AnyValue, var: Variable) -> AnyValue:
    """Return a `Value` that holds a variable and has the layout of `value`."""
    return replace(value, var=var)


def common_layout(node: Apply, values: Sequence[Value]) -> Sharded:
    """Return the common layout of the split arrays; their rows must belong to the same examples."""
    split = [value for value in values if isinstance(value, Sharded)]
    first = split[0]
    for value in split:
        if value.axis != first.axis or value.interleaved != first.interleaved:
            raise NotSplittable(
                node, f"rows of {first.var} are combined with rows of {value.var}, which belong to other examples"
            )
    return min(split, key=lambda value: value.unit)
