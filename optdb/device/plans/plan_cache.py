"""The plan cache: its entries and keys, and data about the last call."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from optdb.device.plans.linked import LinkedFunction, Round, ValueId
from optdb.device.plans.plan import Plan
from optdb.device.plans.recording import Recording, same
from optdb.runtime.commands import CommandList
from optdb.runtime.dispatch import listening
from optdb.runtime.host_buffers import pays_zero_copy

#: The shape and the address of each input in a call, which together select a plan.
Shapes = tuple[tuple[int, ...] | None, ...]
Addresses = tuple[Any, ...]
Cell = list[Any]
_first_of = operator.itemgetter(0)


@dataclass(eq=False)
class PlanSearch:
    """The state of the search for a call's plan."""

    shapes: Shapes
    addresses: Addresses
    first: Round
    #: The last call's plan.
    before: Plan | None


class SameValues:
    """Cells and the values that they held, for a fast comparison by identity."""

    def __init__(self, pairs: Sequence[tuple[Cell, Any]]) -> None:
        self._cells = [cell for cell, _ in pairs]
        self._values = [value for _, value in pairs]

    def are_identical(self) -> bool:
        return all(map(operator.is_, map(_first_of, self._cells), self._values))


class InputKeys:
    """Computes the key for a call's inputs, and caches the key's parts for recent arrays."""

    def __init__(self, linked: LinkedFunction) -> None:
        self._linked = linked
        #: For each input: the variable, its cell, and whether it is on the device.
        self.inputs = [(var, linked.cells[var], linked.on_device(var)) for var in linked.inputs]
        #: For each input, a recent array and its part of the key.
        self._keyed: list[tuple[Any, Any, Any]] = [(None, None, None)] * len(self.inputs)
        #: The inputs that are or have been rebindable.
        self.rebound: frozenset[ValueId] = frozenset()

    def key(self) -> tuple[Shapes, Addresses]:
        """Return the inputs' shapes, and the addresses of device arrays that are not rebindable."""
        shapes, addresses = [], []
        rebindable = self._linked.rebindable_inputs
        self.rebound |= rebindable
        for i, (var, cell, here) in enumerate(self.inputs):
            value = cell[0]
            if not here:
                shapes.append(getattr(value, "shape", None))
                continue
            known, shape, address = self._keyed[i]
            if known is None or known() is not value:
                shape, buffer = value.shape, value.base_data
                if var in rebindable and pays_zero_copy(value.nbytes):
                    address = value.dtype
                else:
                    address = None if buffer is None else buffer.int_ptr, value.offset, value.strides
                if var not in self.rebound:  # rebindable inputs have a different buffer in each call
                    self._keyed[i] = weakref.ref(value), shape, address
            shapes.append(shape)
            addresses.append(address)
        return tuple(shapes), tuple(addresses)

    def noted(self, shapes: Shapes) -> tuple[SameValues, list[tuple[Cell, Any]]] | None:
        """Return the device inputs, and the host inputs' cells and shapes; None if a device array no longer exists."""
        here = [(cell, array()) for (_, cell, is_here), (array, *_) in zip(self.inputs, self._keyed) if is_here]
        if any(array is None for _, array in here):
            return None
        others = [(cell, shape) for (_, cell, is_here), shape in zip(self.inputs, shapes) if not is_here]
        return SameValues(here), others


@dataclass(eq=False)
class LastCall:
    """The plan and inputs of the last call; a call with the same inputs needs no search."""

    #: The plan that the inputs selected; None if the same inputs may select another plan next time.
    plan: Plan | None = None
    #: The inputs on the device.
    inputs: SameValues = field(default_factory=lambda: SameValues(()))
    #: The cells of the inputs on the host, with the shapes of the values in the cells.
    shapes: list[tuple[Cell, Any]] = field(default_factory=list)
    #: How to repeat the call without Python, if possible.
    repetition: Repetition | None = None


class Repetition(SameValues):
    """A call that can be repeated by enqueueing its commands while all values are unchanged.

    `pairs` contains the cells of device arrays and results, each with the object that it must still hold. `given`
    contains the cells of the function's host inputs, each with a copy of its value.
    """

    def __init__(
        self, plan: Plan, pairs: Sequence[tuple[Cell, Any]], given: Sequence[tuple[Cell, Any]], commands: CommandList
    ) -> None:
        super().__init__(pairs)
        self._given = given
        self._commands = commands
        #: Counts the plan's calls; None once the plan's commands no longer change.
        self._expect = None if plan.is_settled else plan.expect

    def next_commands(self) -> CommandList | None:
        """If the next call needs only the commands, count the call and return the commands; otherwise, return None."""
        if listening() is not None or not all(map(operator.is_, map(_first_of, self._cells), self._values)):
            return None
        if self._given and not all(same(cell[0], before) for cell, before in self._given):
            return None
        return None if self._expect is not None and self._expect(1) else self._commands


@dataclass(eq=False)
class PlanCacheEntry:
    """An entry of the plan cache: addresses of device arrays, a recording, and the plan if it has been made."""

    addresses: Addresses
    recording: Recording
    plan: Plan | None = None
