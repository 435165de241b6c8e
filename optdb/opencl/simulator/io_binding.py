"""The inputs and outputs of a function on a device: between Theano's storage and what computes.

An :class:`Input` brings an argument to the device, or lends it (``zero_copy``); an :class:`Output` brings a result
home, unless it was computed there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.host.graph import Variable
from optdb.lifters.transfers import record_transfer
from optdb.runtime.arrays import Array, DeviceArray, as_host_value, deep_copy, fetch, from_host, to_host

if TYPE_CHECKING:
    from optdb.opencl.simulator.zero_copy import ZeroCopyScope
    from optdb.runtime.recording import ArrayLayout

#: What transfers are called that are no op's.
ARGUMENTS, RESULTS = "arguments of a call", "results of a call"
#: For so many shapes of an input, its memory on the device is kept, to be used again.
_KEPT = 8


@dataclass(eq=False)
class Input:
    """An input that is not shared."""

    #: Of the original graph.
    variable: Variable
    #: Where Theano's Function puts its value.
    storage: list[Any]
    #: Where the machine looks for it.
    cell: list[Any]
    #: Whether it is on the device.
    placed: bool
    #: Whether the machine computes its next value.
    updated: bool
    #: Whether the machine may overwrite it.
    mutable: bool

    def __post_init__(self) -> None:
        #: Whether a call may leave another value than it was given.
        self.may_change = self.updated or self.mutable
        #: Whether the machine may use it where the caller has it.
        self.may_be_external = self.placed and not self.may_change
        self._dtype = np.dtype(self.variable.type.dtype) if self.may_be_external else None
        self._lent: Array | None = None
        self._kept: OrderedDict[tuple[int, ...], Array] = OrderedDict()

    def take(self, context: Any, events: list[Any] | None = None, scope: ZeroCopyScope | None = None) -> None:
        """Let the machine have the value.

        Parameters
        ----------
        context : Context
            Where.
        events : list, optional
            Gets the event of a copy that is not waited for.
        scope : ZeroCopyScope, optional
            What lends the value, so that it need not be copied.
        """
        value = self.storage[0]
        if value is None:
            raise TypeError(f"the input {self.variable} is None; it has to be {self.variable.type}")
        if not self.placed:
            self.cell[0] = value
            if scope is not None:
                scope.track(value)
            return
        if scope is not None and self.may_be_external and value.dtype == self._dtype:
            buffer = scope.take(self.cell, value)
            if buffer is not None:
                self.cell[0] = self._around(context, buffer, value.shape)
                return
        record_transfer(ARGUMENTS, value.nbytes)
        kept = self._kept.get(value.shape)
        self.cell[0] = from_host(context, value, kept, events=events)
        self._kept[value.shape] = self.cell[0]
        self._kept.move_to_end(value.shape)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _around(self, context: Any, buffer: Any, shape: tuple[int, ...]) -> Array:
        """Return the array that a buffer of the caller's holds: mostly the last one, since new ones are slow."""
        if self._lent is None or self._lent.shape != shape:
            self._lent = DeviceArray(context.queue, shape, self._dtype, data=buffer)
        self._lent.base_data = buffer
        return self._lent

    def give_back(self) -> None:
        """Let Theano's Function have the next value."""
        if self.updated:
            self.storage[0] = as_host_value(self.cell[0])


@dataclass(eq=False)
class Output:
    """An output."""

    #: Where the machine puts it.
    cell: list[Any]
    #: Whether the caller wants it on the host.
    on_host: bool
    #: Whether the next call may overwrite what the caller was given.
    borrow: bool
    _kept: np.ndarray | None = None

    def bind_external(self, scope: ZeroCopyScope, layout: ArrayLayout) -> Any:
        """Return the buffer of an array for the caller, into which the machine is to compute; None if it may choose."""
        return scope.bind_output(self.cell, layout, self._kept)

    def give(self, scope: ZeroCopyScope | None, events: list[Any] | None = None) -> Any:
        """Return the value, the caller's own unless it is borrowed.

        Parameters
        ----------
        scope : ZeroCopyScope, optional
            What has lent an array for it; None if values may be on their way still.
        events : list, optional
            Gets the event of a copy that is not waited for.
        """
        value = self.cell[0]
        if not (isinstance(value, Array) and self.on_host):
            return value if self.borrow and scope is not None else deep_copy(value)
        if scope is None:
            return fetch(value, events)
        home = scope.take_output(self.cell)
        if home is None:
            record_transfer(RESULTS, value.nbytes)
            home = to_host(value, scope.reusable(self._kept))
        if self.borrow:
            self._kept = home
        return home
