"""The shared variables of functions on a device; all functions that use a variable share one copy of it.

A :class:`Shared` copies its value between its cell and Theano's storage on request. A simulator's :class:`State`
contains all its shared variables, and lets one thread at a time use them.
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
from optdb.unknown_names import UnknownName

#: The names under which transfers without an op are recorded.
TO_DEVICE, TO_HOST = "shared variables to the device", "shared variables to the host"


class SimulatorClosed(RuntimeError):
    """Raised if a simulator is used after it was closed."""


class Shared:
    """A simulator's copy of a shared variable, with Theano's variable and storage."""

    def __init__(self, variable: SharedVariable, storage: list[Any], placed: bool, context_name: Hashable) -> None:
        self.variable = variable
        #: Whether the copy is on the device although Theano's value is on the host.
        self.placed = placed
        #: The copy's type on the device; None if the copy is on the host.
        self.array_type: OpenCLArrayType | None = None
        if isinstance(variable.type, OpenCLArrayType):
            self.array_type = variable.type
        elif placed:
            self.array_type = opencl_type(variable.type.dtype, variable.type.broadcastable, context_name)
        #: Whether functions may overwrite the current value at any time in a call (see `held_variable`).
        self.is_scratch = getattr(variable.tag, "is_scratch", False)
        self._storage = storage
        self.cell: list[Any] = [None]
        self.from_theano()

    @property
    def in_step(self) -> bool:
        """Whether Theano's value has remained the same object since the last copy to or from Theano's storage."""
        return self._storage[0] is self._seen

    def value(self) -> Any:
        """Return a copy of the value in the form that Theano's variable holds: a host value or a device array."""
        return self.host_value() if isinstance(self.variable.type, TensorType) else deep_copy(self.cell[0])

    def host_value(self) -> Any:
        value = self.cell[0]
        if not isinstance(value, Array):
            return deep_copy(value)
        record_transfer(TO_HOST, value.nbytes)
        return to_host(value)

    def assign(self, value: Any) -> None:
        """Set the value; raise `TypeError` if the variable's type does not accept it."""
        value = self.variable.type.filter(value, allow_downcast=None)
        if self.array_type is None:
            self.cell[0] = deep_copy(value)
        elif isinstance(value, np.ndarray):
            record_transfer(TO_DEVICE, value.nbytes)
            # Overwrite the current array, since plans refer to it.
            self.cell[0] = from_host(self.array_type.context, value, self.cell[0])
        else:
            self.cell[0] = self.array_type.own(value)

    def from_theano(self) -> None:
        value = self._storage[0]
        self.assign(value)
        self._seen = value

    def refresh(self) -> None:
        """Copy the value from Theano's storage before a call, if needed. This implementation does nothing."""

    def to_theano(self) -> None:
        self._storage[0] = self._seen = self.value()


class Mirror(Shared):
    """A device copy of a shared variable whose value Theano keeps on the host."""

    #: The version of the copied value; None while the copy is invalid.
    _version: int | None

    def from_theano(self) -> None:
        container_version = version(self.variable.container)
        self.lose()  # invalid until the copy is complete
        super().from_theano()
        self._version = container_version

    def refresh(self) -> None:
        """Copy the value from Theano's storage if it may have changed."""
        container = self.variable.container
        is_current = self.in_step and self._version == version(container)
        if not is_current or has_unmarked_writer(container):
            self.from_theano()

    def update_host(self, value: Any) -> None:
        self._storage[0] = self._seen = value

    def lose(self) -> None:
        """Mark the device copy as invalid."""
        self._version = None


class State:
    """A simulator's shared variables; only the thread that holds the lock `turn` uses them."""

    #: Whether the device has the only copy of the values; if so, a failed call must not overwrite them.
    is_only_copy = True
    _kind: ClassVar[type[Shared]] = Shared

    def __init__(self, context_name: Hashable) -> None:
        self.context_name = context_name
        self.context = get_context(context_name)
        #: Returns the lock that a thread holds while it uses the shared variables.
        self.turn = Turn(self.context)
        #: The simulator's description when it was closed; None while it is open.
        self.closed_as: str | None = None
        #: Maps the id of a variable's storage, which all functions share, to the shared variable.
        self._by_storage: MutableMapping[int, Shared] = {}
        self._warned = False

    def check_open(self) -> None:
        if self.closed_as is not None:
            raise SimulatorClosed(
                f"{self.closed_as}: its memory on the device was released. Create another one from the same "
                "function: optdb.SimulatorOCL(function)"
            )

    def close(self, description: str) -> None:
        """Release the shared variables; the caller must hold the lock `turn`."""
        self.context.queue.finish()
        self.closed_as = description
        for shared in self:
            shared.cell[0] = None

    def begin_call(self, used: Sequence[Shared]) -> None:
        """Prepare the shared variables that a function uses; this method warns once if Theano's values have changed."""
        if self._warned or not trace_log.wants("shared"):
            return
        changed = [str(shared.variable.name) for shared in self if not shared.in_step]
        if changed:
            self._warned = True
            logger.warning(
                "Theano's values of %s were changed, and differ from the simulator's; call sync_from_theano() or "
                "sync_to_theano() to synchronize them.",
                ", ".join(changed),
            )

    def __iter__(self) -> Iterator[Shared]:
        return iter(self._by_storage.values())

    def __len__(self) -> int:
        return len(self._by_storage)

    def add(self, variable: SharedVariable, storage: list[Any], on_device: bool) -> Shared | None:
        """Return the shared variable for one of Theano's storage cells; add one with Theano's value if there is none.

        The first function that uses a variable decides whether the variable is on the device. Return None if functions
        use Theano's storage directly.
        """
        shared = self._by_storage.get(id(storage))
        if shared is None:
            shared = self._by_storage[id(storage)] = self._kind(variable, storage, on_device, self.context_name)
        return shared

    def find(self, which: Any) -> Shared:
        """Return the shared variable for Theano's variable or its name; raise `UnknownName` unless exactly one fits."""
        storage = getattr(getattr(which, "container", None), "storage", None)
        matches = [shared for shared in self if shared.variable is which or storage is shared._storage]
        if not matches and isinstance(which, str):
            matches = [shared for shared in self if shared.variable.name == which]
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(str(shared.variable.name) for shared in self) or "none"
        what = "several shared variables are" if matches else "no shared variable of this simulator is"
        raise UnknownName(f"{what} named {which!r}; the names are: {names}. Pass Theano's variable itself")

    def chosen(self, which: tuple[Any, ...]) -> list[Shared]:
        """Return the shared variables in `which`; all shared variables if `which` is empty."""
        return [self.find(key) for key in which] if which else list(self)
