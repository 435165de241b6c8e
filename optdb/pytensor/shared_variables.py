"""Fetches values of PyTensor's shared variables from a device when they are read on the host.

On a device that shares the host's memory, these functions are not installed at first, because values are valid on both
sides between calls. On other devices, and once a call has begun without waiting, a shared variable's storage may have a
:class:`~optdb.device.functions.shared_values.ValueOnDevice`. This value is fetched by `get_value`, by pickling and
copying, and by functions of other modes before they run. Such a device keeps copies of arrays, and copies a value again
only if it is another array object. An array that was edited in place, by the user or by a host function, is therefore
replaced with a new array object over the same memory.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from pytensor.compile.executor import Function
from pytensor.link.basic import Container

from optdb.device.functions.shared_values import ValueOnDevice, fetched

__all__ = ["let_hosts_fetch"]


@functools.cache
def let_hosts_fetch() -> None:
    """Make containers and functions fetch values from devices, from now on."""
    Container.value = Container.data = property(_fetched_value, functools.partial(_set_value, Container.value.fset))
    Function.__call__ = _fetching(Function.__call__)


def _fetched_value(self: Container) -> Any:
    """Return the value of a container."""
    return fetched(self.storage)


def _set_value(set_value: Any, self: Container, value: Any) -> None:
    """Set the value of a container; an array that was there before is replaced with a view."""
    before = self.storage[0]
    set_value(self, value)
    _tell_apart(self.storage, before)


def _fetching(call: Any) -> Any:
    """Wrap a function's call.

    The wrapper fetches values that the function cannot read on a device, and marks updated arrays.
    """

    @functools.wraps(call)
    def fetch_and_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        vm = self.vm
        if not getattr(vm, "need_update_inputs", True) and hasattr(vm, "run"):
            return call(self, *args, **kwargs)
        for cell in self._input_storage_data:
            if type(cell[0]) is ValueOnDevice:
                fetched(cell)
        updated = _updated_cells(self) if self._has_updates else []
        before = [cell[0] for cell in updated]
        try:
            return call(self, *args, **kwargs)
        finally:
            for cell, value in zip(updated, before):
                _tell_apart(cell, value)

    return fetch_and_call


def _updated_cells(function: Function) -> list[list[Any]]:
    """Return the cells of the inputs that a function updates and may overwrite."""
    inputs = zip(function.maker.expanded_inputs, function.input_storage, strict=True)
    return [container.storage for given, container in inputs if given.update is not None]


def _tell_apart(cell: list[Any], before: Any) -> None:
    """If an array may have been overwritten, replace it with a view of itself; the device then sees a new object."""
    if isinstance(before, np.ndarray) and cell[0] is before:
        cell[0] = before.view()
