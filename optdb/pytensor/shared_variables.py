"""Patches that copy PyTensor's shared variables from a device when the host reads them.

The patches are installed for devices with their own memory, and before the first asynchronous call. A value is
uploaded again only if its array object has changed, so an array that may have been modified in place is replaced with a
view of itself.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from pytensor.compile.executor import Function
from pytensor.link.basic import Container

from optdb.device.functions.shared_values import ValueOnDevice, fetched


@functools.cache
def let_hosts_fetch() -> None:
    """Make containers and functions fetch values from devices."""
    Container.value = Container.data = property(_fetched_value, functools.partial(_set_value, Container.value.fset))
    Function.__call__ = _fetching(Function.__call__)


def _fetched_value(self: Container) -> Any:
    return fetched(self.storage)


def _set_value(set_value: Any, self: Container, value: Any) -> None:
    """Set a container's value; if the new value is the array that the container already holds, store a view of it."""
    before = self.storage[0]
    set_value(self, value)
    _tell_apart(self.storage, before)


def _fetching(call: Any) -> Any:
    """Make calls fetch values that the function cannot read on a device, and replace updated arrays with views."""

    @functools.wraps(call)
    def fetch_and_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        vm = self.vm
        if not getattr(vm, "need_update_inputs", True) and hasattr(vm, "run"):
            return call(self, *args, **kwargs)
        for cell in self._input_storage_data:
            if type(cell[0]) is ValueOnDevice:
                fetched(cell)
        # The cells of inputs that the function may overwrite.
        inputs = zip(self.maker.expanded_inputs, self.input_storage, strict=True) if self._has_updates else ()
        updated = [container.storage for given, container in inputs if given.update is not None]
        before = [cell[0] for cell in updated]
        try:
            return call(self, *args, **kwargs)
        finally:
            for cell, value in zip(updated, before):
                _tell_apart(cell, value)

    return fetch_and_call


def _tell_apart(cell: list[Any], before: Any) -> None:
    """If an array may have been overwritten, replace it with a view of itself."""
    if isinstance(before, np.ndarray) and cell[0] is before:
        cell[0] = before.view()
