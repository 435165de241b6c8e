"""Exchanges a function's virtual machine while its nodes change from Python to C.

Theano's machine in C (CVM) reads its thunks once, when it is constructed. So a function gets a new machine, with the
same storage, between two of its calls. Until the last exchange, machines are of a class that looks for finished modules
when it is called: `_FirstTier` over Theano's class.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from theano.compile.function_module import Function
from theano.gof import vm
from theano.gof.vm import VM

from optdb.host.clinker.tiers.background import Background
from optdb.host.clinker.tiers.interrupts import deferred_interrupts
from optdb.host.clinker.tiers.thunks import ChangingThunk

__all__ = ["FirstTier", "MachineExchange", "bind", "exchange_of", "is_exchangeable"]

#: Theano's machines, which keep nothing between two calls but the storage, counters and settings.
_EXCHANGEABLE = tuple(getattr(vm, name) for name in ("CVM", "Loop", "LoopGC", "Stack") if hasattr(vm, name))

#: Attributes of the first tier that the last machine does not get.
_OWN = ("exchange", "turn")


class MachineExchange:
    """The machines of one function, from the first tier to C.

    Parameters
    ----------
    thunks : sequence of callable
        The thunks in the machine's order, `ChangingThunk` among them.
    make_machine : callable
        Makes Theano's machine from a list of thunks.
    queue : Background
        The queue that builds modules.
    overwrites_state : bool
        Whether the function may overwrite shared variables before all their next values are computed.
    """

    def __init__(
        self,
        thunks: Sequence[Callable[[], Any]],
        make_machine: Callable[[list[Any]], VM],
        queue: Background,
        overwrites_state: bool,
    ) -> None:
        self.thunks = list(thunks)
        self.machine: VM | None = None
        #: The function that calls the machine, once it exists.
        self.function: weakref.ref[Function] | None = None
        #: Lets threads that call the function wait for each other: Python code gives way to other threads.
        self.turn = threading.RLock()
        self._make_machine = make_machine
        self._queue = queue
        self._scope = deferred_interrupts if overwrites_state else nullcontext
        self._finished = -1
        self._depth = 0

    @property
    def changing(self) -> list[ChangingThunk]:
        """The thunks that begin in Python, changed or not."""
        return [thunk for thunk in self.thunks if isinstance(thunk, ChangingThunk)]

    @property
    def is_over(self) -> bool:
        """Whether no thunk waits for its C code."""
        return not any(thunk.is_pending for thunk in self.changing)

    def begin(self, machine: VM) -> VM:
        """Make a machine of Theano's the first one; return it."""
        for thunk in self.changing:
            thunk.has_machine = True
        self.machine = self._as_first_tier(machine)
        return self.machine

    def call(self, machine: VM, *args: Any, **options: Any) -> Any:
        """Change over what is ready, unless the function is running, and call the machine that is in force.

        Parameters
        ----------
        machine : VM
            The machine that is called, which may be out of force.
        *args, **options
            As Theano's machine takes them.
        """
        self.change_over_between_calls()
        self._depth += 1
        try:
            if self.machine is machine:
                with self._scope():
                    return super(FirstTier, machine).__call__(*args, **options)
            return self.machine(*args, **options)
        finally:
            self._depth -= 1
            if self.machine is not machine and hasattr(machine, "position_of_error"):
                # Scan asks the machine that it has called.
                machine.position_of_error = self.machine.position_of_error

    def change_over_between_calls(self) -> None:
        """Exchange the machine if modules were built since the last time, unless a call is running."""
        if self._depth:
            return
        if self._queue.is_stalled:
            self._queue.start()
        if self._finished == self._queue.finished:
            return
        finished = self._queue.finished
        changed = [thunk for thunk in self.changing if thunk.change_over()]
        if changed:
            self._exchange()
        self._finished = finished

    def _exchange(self) -> None:
        old = self.machine
        new = self._make_machine([thunk if _is_pending(thunk) else _settled(thunk) for thunk in self.thunks])
        _carry_over(old, new)
        self.machine = new if self.is_over else self._as_first_tier(new)
        function = self.function and self.function()
        if function is not None and function.fn is old:
            function.fn = self.machine

    def _as_first_tier(self, machine: VM) -> VM:
        machine.__class__ = _first_tier_of(type(machine))
        machine.exchange = self
        machine.turn = self.turn
        return machine


class FirstTier:
    """What a machine of the first tier has beside Theano's class."""

    exchange: MachineExchange

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.exchange.call(self, *args, **options)


_classes: dict[type, type] = {}


def _first_tier_of(kind: type[VM]) -> type[VM]:
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (FirstTier, kind), {"__doc__": kind.__doc__})
    return _classes[kind]


def is_exchangeable(machine: Any) -> bool:
    """Return whether a machine is of one of Theano's classes, and nothing is added to it."""
    return type(machine) in _EXCHANGEABLE


def _is_pending(thunk: Any) -> bool:
    return isinstance(thunk, ChangingThunk) and thunk.is_pending


def _settled(thunk: Any) -> Any:
    """Return the thunk itself, without the time that is taken in the first tier."""
    if not isinstance(thunk, ChangingThunk):
        return thunk
    settled = thunk.current
    settled.inputs, settled.outputs, settled.lazy = thunk.inputs, thunk.outputs, thunk.lazy
    settled.failed_module = thunk.failed_module
    return settled


def _carry_over(old: VM, new: VM) -> None:
    """Give a new machine the settings of an old one, and the times that no profile has yet."""
    for name, value in vars(old).items():
        if name not in _OWN and (name not in vars(new) or name in ("storage_map", "compute_map")):
            setattr(new, name, value)
    if new.allow_gc != old.allow_gc:
        new.allow_gc = old.allow_gc
    new.time_thunks = old.time_thunks
    new.call_counts[:] = old.call_counts
    new.call_times[:] = old.call_times


def exchange_of(machine: Any) -> MachineExchange | None:
    """Return the exchange that a machine takes part in; None for others."""
    return machine.exchange if isinstance(machine, FirstTier) else None


def bind(function: Any) -> None:
    """Refer the exchange of a linked function to it: it replaces the machine."""
    exchange = exchange_of(getattr(function, "fn", None))
    if exchange is not None:
        exchange.function = weakref.ref(function)
