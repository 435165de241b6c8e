"""The shared variables of functions on a device: copies of Theano's, each once for all functions that use it.

A :class:`Shared` has a cell, as Theano's storage is: a list of one element, which the functions on the device have as
the storage of that input. It knows Theano's own storage too, and copies between the two when it is asked to. The
:class:`State` of a simulator has all of them, and lets one thread at a time use them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar

import numpy as np

from optdb import trace_log
from optdb.host.api.config import logger
from optdb.host.api.variables import SharedVariable, TensorType
from optdb.host.theano.functions.sharing import has_unmarked_writer, version
from optdb.lifters.transfers import record_transfer
from optdb.opencl.registry import get_context
from optdb.opencl.type import OpenCLArrayType, opencl_type
from optdb.runtime.arrays import Array, deep_copy, from_host, to_host
from optdb.runtime.context import Turn

__all__ = ["Mirror", "Shared", "SimulatorClosed", "State", "UnknownShared"]

#: Names of transfers that no op makes.
TO_DEVICE, TO_HOST = "shared variables to the device", "shared variables to the host"


class SimulatorClosed(RuntimeError):
    """A simulator was used after it was closed."""


class UnknownShared(KeyError):
    """A simulator has no such shared variable."""

    def __str__(self) -> str:
        return self.args[0]


class Shared:
    """A shared variable, beside Theano's variable and storage."""

    def __init__(self, variable: SharedVariable, storage: list[Any], placed: bool, context_name: Hashable) -> None:
        self.variable = variable
        #: Whether it is on the device, though Theano has it on the host.
        self.placed = placed
        #: Its type on the device; None if it is on the host.
        self.array_type: OpenCLArrayType | None = None
        if isinstance(variable.type, OpenCLArrayType):
            self.array_type = variable.type
        elif placed:
            self.array_type = opencl_type(variable.type.dtype, variable.type.broadcastable, context_name)
        #: Whether functions may write a next value over the present one at any time of a call (`held_variable`).
        self.is_scratch = getattr(variable.tag, "is_scratch", False)
        self._storage = storage
        #: Its value here.
        self.cell: list[Any] = [None]
        self.from_theano()

    @property
    def in_step(self) -> bool:
        """Whether Theano's value is the one that was last copied from there, or to there."""
        return self._storage[0] is self._seen

    def value(self) -> Any:
        """Return a copy of the value as Theano's variable holds it: on the device, if it is the device's."""
        return self.host_value() if isinstance(self.variable.type, TensorType) else deep_copy(self.cell[0])

    def host_value(self) -> Any:
        """Return a copy of the value on the host: an array of NumPy, or another object that the variable holds."""
        value = self.cell[0]
        if not isinstance(value, Array):
            return deep_copy(value)
        record_transfer(TO_HOST, value.nbytes)
        return to_host(value)

    def assign(self, value: Any) -> None:
        """Take another value; raise `TypeError` if the variable's type does not admit it."""
        value = self.variable.type.filter(value, allow_downcast=None)
        if self.array_type is None:
            self.cell[0] = deep_copy(value)
        elif isinstance(value, np.ndarray):
            record_transfer(TO_DEVICE, value.nbytes)
            # Over the present one, where plans look for it.
            self.cell[0] = from_host(self.array_type.context, value, self.cell[0])
        else:
            self.cell[0] = self.array_type.own(value)

    def from_theano(self) -> None:
        """Take Theano's value."""
        value = self._storage[0]
        self.assign(value)
        self._seen = value

    def refresh(self) -> None:
        """Take Theano's value if each call has to: here, none has to."""

    def to_theano(self) -> None:
        """Let Theano have the value, in an array of its own."""
        self._storage[0] = self._seen = self.value()


class Mirror(Shared):
    """The copy on the device of a shared variable whose value Theano keeps on the host."""

    #: The version of Theano's value that was taken; None while the value here is invalid.
    _version: int | None

    def from_theano(self) -> None:
        """Take Theano's value."""
        container_version = version(self.variable.container)
        self.lose()  # until the copy is complete
        super().from_theano()
        self._version = container_version

    def refresh(self) -> None:
        """Take Theano's value, unless it is certain that it is still the same."""
        container = self.variable.container
        is_current = self.in_step and self._version == version(container)
        if not is_current or has_unmarked_writer(container):
            self.from_theano()

    def update_host(self, value: Any) -> None:
        """Store the device's value in Theano's storage."""
        self._storage[0] = self._seen = value

    def lose(self) -> None:
        """Mark the value on the device as invalid."""
        self._version = None


class State:
    """The shared variables of a simulator on its device; one thread at a time uses them, the one that has the turn."""

    #: Whether next values are nowhere else, so that a call that fails must not have overwritten any.
    is_only_copy = True
    #: The class of its shared variables.
    _kind: ClassVar[type[Shared]] = Shared

    def __init__(self, context_name: Hashable) -> None:
        self.context_name = context_name
        self.context = get_context(context_name)
        #: Gives the lock that a thread holds while it uses the shared variables.
        self.turn = Turn(self.context)
        #: The description of the simulator when it was closed; None as long as it is open.
        self.closed_as: str | None = None
        #: By Theano's storage, which is the same in all functions that share a variable.
        self._by_storage: MutableMapping[int, Shared] = {}
        self._warned = False

    def check_open(self) -> None:
        """Raise `SimulatorClosed` if the simulator was closed."""
        if self.closed_as is not None:
            raise SimulatorClosed(
                f"{self.closed_as}: its memory on the device was released. Make another one of the same function: "
                "optdb.SimulatorOCL(function)"
            )

    def close(self, description: str) -> None:
        """Release the shared variables; the caller has the turn."""
        self.context.queue.finish()
        self.closed_as = description
        for shared in self:
            shared.cell[0] = None

    def begin_call(self, used: Sequence[Shared]) -> None:
        """Make the shared variables that a function uses ready; here, warn once if Theano's values were changed."""
        if self._warned or not trace_log.wants("shared"):
            return
        changed = [str(shared.variable.name) for shared in self if not shared.in_step]
        if changed:
            self._warned = True
            logger.warning(
                "Theano's values of %s were changed, and the simulator has others; "
                "sync_from_theano() or sync_to_theano() brings them into step.",
                ", ".join(changed),
            )

    def __iter__(self) -> Iterator[Shared]:
        return iter(self._by_storage.values())

    def __len__(self) -> int:
        return len(self._by_storage)

    def add(self, variable: SharedVariable, storage: list[Any], on_device: bool) -> Shared | None:
        """Return the shared variable of Theano's storage; take it in, with Theano's value, if it is new.

        It is where the first function has wanted it. None is returned if functions use Theano's storage itself.
        """
        shared = self._by_storage.get(id(storage))
        if shared is None:
            shared = self._by_storage[id(storage)] = self._kind(variable, storage, on_device, self.context_name)
        return shared

    def find(self, which: Any) -> Shared:
        """Return a shared variable by Theano's variable or its name; raise `UnknownShared` unless there is just one."""
        storage = getattr(getattr(which, "container", None), "storage", None)
        matches = [shared for shared in self if shared.variable is which or storage is shared._storage]
        if not matches and isinstance(which, str):
            matches = [shared for shared in self if shared.variable.name == which]
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(str(shared.variable.name) for shared in self) or "none"
        what = "several shared variables are" if matches else "no shared variable of this simulator is"
        raise UnknownShared(f"{what} called {which!r}; there are: {names}. Give Theano's variable itself")

    def chosen(self, which: tuple[Any, ...]) -> list[Shared]:
        """Return the shared variables that are named; all of them if none is."""
        return [self.find(key) for key in which] if which else list(self)
