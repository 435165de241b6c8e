"""Layouts, which describe how workers hold a value, and predicates that rules apply to layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from optdb.distributed.errors import NotSplittable
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.variables import TensorType, TensorVariable


def array_of(var: Variable) -> TensorVariable:
    """Check that a variable is an array, and return it for use in computations."""
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
        """The variable, for use in computations if the value is an array."""
        return array_of(self.var)


@dataclass(frozen=True)
class Replicated(Value):
    """Each worker has the whole value."""

    #: Whether all elements are known to be zero or are uninitialized.
    zero: bool = False


@dataclass(frozen=True)
class Sharded(Value):
    """Each worker has the rows for its part of the batch, along one axis."""

    axis: int
    #: Whether there is exactly one row for each example.
    unit: bool = True
    #: Whether rows of different examples alternate, for example after (time, batch) has become one axis. Otherwise, the
    #: concatenation of all workers' rows is the whole value.
    interleaved: bool = False


@dataclass(frozen=True)
class Partial(Value):
    """Each worker has an array with the whole value's shape; the whole value is the sum of these arrays."""


@dataclass(frozen=True)
class Own(Value):
    """A statistic of a worker's own part, which is not combined with other workers' statistics."""


@dataclass(frozen=True)
class Length(Value):
    """An integer computed from the length of a worker's part."""

    #: The same integer computed from the length of the whole batch, on all workers.
    whole: Variable
    #: Whether the integer is the length itself.
    unit: bool = False
    #: Whether the integer is a multiple of the length. In this case, arrays of the worker can have the length `var`.
    linear: bool = True


@dataclass(frozen=True)
class Vector(Value):
    """A vector whose length may vary, with a value for each element."""

    entries: tuple[Value, ...] = field(default=())


@dataclass(frozen=True)
class RowNumbers(Value):
    """The numbers 0, 1, ... up to the length, which may index rows but may not be used in computations."""


def has(values: Sequence[Value], layout: type) -> bool:
    """Tell whether any of the values has a layout."""
    return any(isinstance(value, layout) for value in values)


def has_zeros(value: Value) -> bool:
    """Tell whether all elements of a value are known to be zero."""
    return isinstance(value, Replicated) and value.zero


AnyValue = TypeVar("AnyValue", bound=Value)


def with_layout_of(value: AnyValue, var: Variable) -> AnyValue:
    """Return the value of a variable that has the same layout as a given value."""
    return replace(value, var=var)


def common_layout(node: Apply, values: Sequence[Value]) -> Sharded:
    """Return the layout of the split arrays among values; their rows must belong to the same examples."""
    split = [value for value in values if isinstance(value, Sharded)]
    first = split[0]
    for value in split:
        if value.axis != first.axis or value.interleaved != first.interleaved:
            raise NotSplittable(
                node, f"rows of {first.var} are combined with rows of {value.var}, which belong to other examples"
            )
    return min(split, key=lambda value: value.unit)
