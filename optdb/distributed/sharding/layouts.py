"""The ways in which workers hold a value: its layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from optdb.host.api.graph import Variable
from optdb.host.api.variables import TensorType, TensorVariable


def array_of(var: Variable) -> TensorVariable:
    """Return a variable that is an array, to compute with."""
    assert isinstance(var.type, TensorType), f"{var} is no array"
    array: Any = var
    return array


@dataclass(frozen=True)
class Value:
    """What one worker has of a value."""

    #: In the graph of one worker.
    var: Variable

    @property
    def array(self) -> TensorVariable:
        """The variable of a value that is an array, to compute with."""
        return array_of(self.var)


@dataclass(frozen=True)
class Replicated(Value):
    """Each worker has all of it."""

    #: Whether it is known to be nothing but zeros, or memory that is not filled yet.
    zero: bool = False


@dataclass(frozen=True)
class Sharded(Value):
    """Each worker has the rows that its part of the batch makes, along one axis."""

    axis: int
    #: Whether there is one row for each example.
    unit: bool = True
    #: Whether rows of different examples alternate, as where (time, batch) has become one axis. Else, workers' rows one
    #: after the other are those of the whole.
    interleaved: bool = False


@dataclass(frozen=True)
class Partial(Value):
    """Each worker has an array of the whole's shape; the whole is their sum."""


@dataclass(frozen=True)
class Own(Value):
    """A statistic of a worker's own part, which is not meant to be put together."""


@dataclass(frozen=True)
class Length(Value):
    """A whole number that is worked out from the length of the part."""

    #: The same worked out from the length of the whole batch: all workers have it.
    whole: Variable
    #: Whether it is the length itself.
    unit: bool = False
    #: Whether it is a multiple of the length, so that `var` is a length of the worker's own arrays.
    linear: bool = True


@dataclass(frozen=True)
class Vector(Value):
    """A vector of lengths, element by element."""

    entries: tuple[Value, ...] = field(default=())


@dataclass(frozen=True)
class RowNumbers(Value):
    """0, 1, ... up to the length: an index of rows, and nothing to compute with."""
