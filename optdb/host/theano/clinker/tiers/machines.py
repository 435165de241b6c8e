"""Replaces a function's virtual machine when its nodes switch from Python to C.

Theano's virtual machine reads its thunks only on construction. To switch, a function therefore gets a new machine,
between two calls, with the same storage. While nodes run in Python, the machine's class combines `TieredMachine` with
Theano's class.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from theano.compile.function_module import Function
from theano.gof import vm
from theano.gof.vm import VM

from optdb.host.theano.clinker.tiers.background import Background
from optdb.host.theano.clinker.tiers.thunks import ChangingThunk
from optdb.host.theano.clinker.tiers.turns import deferred_interrupts, exclusive, uninterrupted

#: Theano's machines whose only state between two calls is storage, counters and settings.
_EXCHANGEABLE = tuple(getattr(vm, name) for name in ("CVM", "Loop", "LoopGC", "Stack") if hasattr(vm, name))

# `TieredMachine` is always used as a base class together with one of Theano's classes.
if TYPE_CHECKING:
    _Machine = VM
else:
    _Machine = object

_OWN = ("exchange", "turn")


class MachineExchange:
    """The virtual machines that one function has in succession, until all its nodes run in C.

    `overwrites_state` says whether nodes may overwrite shared variables before all next values are computed.
    """

    def __init__(
        self,
        thunks: Sequence[Callable[[], Any]],
        make_machine: Callable[[list[Any]], VM],
        queue: Background,
        has_updates: bool,
        overwrites_state: bool,
    ) -> None:
        self.thunks = list(thunks)
        self.machine: VM
        #: The function that calls the machine; None until it exists.
        self.function: weakref.ref[Function] | None = None
        self._make_machine = make_machine
        self._queue = queue
        self._has_updates = has_updates
        self._overwrites_state = overwrites_state
        self._finished = -1
        self._depth = 0

    @property
    def changing(self) -> list[ChangingThunk]:
        """The thunks that began in Python."""
        return [thunk for thunk in self.thunks if isinstance(thunk, ChangingThunk)]

    def begin(self, machine: VM) -> VM:
        """Begin with a machine that Theano created for the function; return this machine."""
        for thunk in self.changing:
            thunk.has_machine = True
        self.machine = self._protected(machine)
        return self.machine

    def call(self, machine: TieredMachine, *args: Any, **options: Any) -> Any:
        """Switch to the modules that are ready, unless a call is already running; then call the machine."""
        with machine.turn():
            self.change_over_between_calls()
            self._depth += 1
            try:
                if self.machine is machine:
                    return super(TieredMachine, machine).__call__(*args, **options)
                return self.machine(*args, **options)
            finally:
                self._depth -= 1
                if self.machine is not machine and hasattr(machine, "position_of_error"):
                    # Scan reads this attribute of the machine that it has called.
                    machine.position_of_error = self.machine.position_of_error

    def change_over_between_calls(self) -> None:
        """If modules were built and no call is running, replace the machine; the caller must hold its lock."""
        if self._depth:
            return
        if self._queue.is_stalled:
            self._queue.start()
        if self._finished == self._queue.finished:
            return
        with deferred_interrupts:
            finished = self._queue.finished
            for thunk in self.changing:
                thunk.change_over()
            if any(isinstance(thunk, ChangingThunk) and not thunk.is_pending for thunk in self.machine.thunks):
                self._exchange()
            self._finished = finished

    def _exchange(self) -> None:
        old = self.machine
        new = self._make_machine([thunk if _is_pending(thunk) else _settled(thunk) for thunk in self.thunks])
        _carry_over(old, new)
        self.machine = self._protected(new)
        function = None if self.function is None else self.function()
        if function is not None and function.fn is old:
            function.fn = self.machine

    def _protected(self, machine: VM) -> VM:
        """Set the lock that calls of a machine hold; if a node runs in Python, also set the machine's tiered class."""
        machine.turn = exclusive
        if _is_whole_in_c(machine):
            return machine
        if self._has_updates and (self._overwrites_state or machine.need_update_inputs):
            machine.turn = uninterrupted
        machine.__class__ = _tiered(type(machine))
        assert isinstance(machine, TieredMachine)
        machine.exchange = self
        return machine


class TieredMachine(_Machine):
    """A mixin for those of Theano's virtual machines that have nodes in Python."""

    exchange: MachineExchange
    turn: Callable[[], AbstractContextManager[object]]

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.exchange.call(self, *args, **options)


_classes: dict[type[VM], type[TieredMachine]] = {}


def _tiered(kind: type[VM]) -> type[TieredMachine]:
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (TieredMachine, kind), {"__doc__": kind.__doc__})
    return _classes[kind]


def _is_whole_in_c(machine: VM) -> bool:
    """Return whether a machine never runs Python code."""
    is_in_c = isinstance(machine, getattr(vm, "CVM", ()))
    return is_in_c and all(hasattr(thunk, "cthunk") for thunk in machine.thunks)


def is_exchangeable(machine: Any) -> bool:
    """Return whether a machine is an unmodified instance of one of Theano's classes."""
    return type(machine) in _EXCHANGEABLE


def _is_pending(thunk: Any) -> bool:
    return isinstance(thunk, ChangingThunk) and thunk.is_pending


def _settled(thunk: Any) -> Any:
    """Return a thunk without the wrapper that measures its time."""
    if not isinstance(thunk, ChangingThunk):
        return thunk
    settled: Any = thunk.current
    settled.inputs, settled.outputs, settled.lazy = thunk.inputs, thunk.outputs, thunk.lazy
    settled.failed_module = thunk.failed_module
    return settled


def _carry_over(old: VM, new: VM) -> None:
    """Copy an old machine's settings, and the times that are not in a profile yet, to a new machine."""
    for name, value in vars(old).items():
        if name not in _OWN and (name not in vars(new) or name in ("storage_map", "compute_map")):
            setattr(new, name, value)
    if new.allow_gc != old.allow_gc:
        new.allow_gc = old.allow_gc
    new.time_thunks = old.time_thunks
    new.call_counts[:] = old.call_counts
    new.call_times[:] = old.call_times


def exchange_of(machine: Any) -> MachineExchange | None:
    """Return the `MachineExchange` that will replace a machine; None if the machine has no nodes in Python."""
    return machine.exchange if isinstance(machine, TieredMachine) else None


def bind(function: Any) -> None:
    """Register a function with its machine's exchange, so that the exchange can replace the function's machine."""
    exchange = exchange_of(getattr(function, "fn", None))
    if exchange is not None:
        exchange.function = weakref.ref(function)
