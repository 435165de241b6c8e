"""The shared variables of a simulator: copies of Theano's, each once for all functions that use it.

A :class:`Shared` has a cell, as Theano's storage is: a list of one element, which the functions on the device have as
the storage of that input. It knows Theano's own storage too, and copies between the two when it is asked to.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from optdb.host.graph import Variable
from optdb.host.variables import TensorType
from optdb.lifters.transfers import record_transfer
from optdb.opencl.type import OpenCLArrayType, opencl_type
from optdb.runtime.arrays import Array, from_host, to_host
from optdb.runtime.arrays import copy as copied

#: What transfers are called that are no op's.
TO_DEVICE, TO_HOST = "shared variables to the device", "shared variables to the host"


class UnknownShared(KeyError):
    """A simulator has no such shared variable."""

    def __str__(self) -> str:
        return self.args[0]


class Shared:
    """A shared variable, beside Theano's.

    Parameters
    ----------
    variable : Variable
        Theano's.
    storage : list
        Theano's storage of it, of one element.
    array_type : OpenCLArrayType or None
        What it is on the device; None if it is on the host.

    Attributes
    ----------
    cell : list
        Of one element: its value here.
    """

    def __init__(self, variable: Variable, storage: list[Any], array_type: OpenCLArrayType | None) -> None:
        self.variable = variable
        self.array_type = array_type
        self._storage = storage
        self.cell: list[Any] = [None]
        self.from_theano()

    @property
    def name(self) -> str | None:
        """What Theano's variable is called."""
        return self.variable.name

    @property
    def in_step(self) -> bool:
        """Whether Theano's value is the one that was last copied from there, or to there."""
        return self._storage[0] is self._seen

    def value(self) -> Any:
        """Return a copy of the value as Theano's variable holds it: on the device, if it is the device's."""
        return self.host_value() if isinstance(self.variable.type, TensorType) else _own(self.cell[0])

    def host_value(self) -> Any:
        """Return a copy of the value on the host: an array of NumPy, or what else the variable holds."""
        value = self.cell[0]
        if not isinstance(value, Array):
            return _own(value)
        record_transfer(TO_HOST, value.nbytes)
        return to_host(value)

    def assign(self, value: Any) -> None:
        """Take another value.

        Raises
        ------
        TypeError
            If the variable's type does not admit it.
        """
        value = self.variable.type.filter(value, allow_downcast=None)
        if self.array_type is None:
            self.cell[0] = _own(value)
        elif isinstance(value, np.ndarray):
            record_transfer(TO_DEVICE, value.nbytes)
            # Over the present one, where plans look for it.
            self.cell[0] = from_host(self.array_type.context, value, self._present(value))
        else:
            self.cell[0] = self.array_type.own(value)

    def from_theano(self) -> None:
        """Take Theano's value."""
        self._seen = self._storage[0]
        self.assign(self._seen)

    def to_theano(self) -> None:
        """Let Theano have the value, in an array of its own."""
        self._storage[0] = self._seen = self.value()

    def _present(self, value: np.ndarray) -> Array | None:
        present = self.cell[0]
        return present if isinstance(present, Array) and present.flags.c_contiguous else None


class State:
    """The shared variables of a simulator.

    Parameters
    ----------
    context_name : str
        The device.
    """

    def __init__(self, context_name: Hashable) -> None:
        self.context_name = context_name
        #: By Theano's storage, which is the same in all functions that share a variable.
        self._known: dict[int, Shared] = {}

    def __iter__(self) -> Iterator[Shared]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def known(self, storage: list[Any]) -> Shared | None:
        """Return what a storage of Theano's belongs to, None if it is new."""
        return self._known.get(id(storage))

    def add(self, variable: Variable, storage: list[Any], on_device: bool) -> Shared:
        """Return a shared variable; take it in, with Theano's value, if it is new."""
        known = self._known.get(id(storage))
        if known is None:
            known = self._known[id(storage)] = self._make(variable, storage, on_device)
        return known

    def find(self, which: Any) -> Shared:
        """Return a shared variable by Theano's variable or by its name.

        Raises
        ------
        UnknownShared
            If there is none, or several have the name.
        """
        found = [shared for shared in self if shared.variable is which or _storage_of(which) is shared._storage]
        if not found and isinstance(which, str):
            found = [shared for shared in self if shared.name == which]
        if len(found) == 1:
            return found[0]
        names = ", ".join(str(shared.name) for shared in self) or "none"
        what = "several shared variables are" if found else "no shared variable of this simulator is"
        raise UnknownShared(f"{what} called {which!r}; there are: {names}. Give Theano's variable itself")

    def chosen(self, which: tuple[Any, ...]) -> list[Shared]:
        """Return the shared variables that are named; all of them if none is."""
        return [self.find(one) for one in which] if which else list(self)

    def _make(self, variable: Variable, storage: list[Any], on_device: bool) -> Shared:
        return Shared(variable, storage, self._type_of(variable, on_device))

    def _type_of(self, variable: Variable, on_device: bool) -> OpenCLArrayType | None:
        if isinstance(variable.type, OpenCLArrayType):
            return variable.type
        if not on_device:
            return None
        return opencl_type(variable.type.dtype, variable.type.broadcastable, self.context_name)


def _storage_of(which: Any) -> Any:
    container = getattr(which, "container", None)
    return None if container is None else container.storage


def _own(value: Any) -> Any:
    return copied(value) if isinstance(value, Array) else copy.deepcopy(value)
