"""Detects in-place changes to the values of shared variables.

Caches of values detect a new object in Theano's storage, but not in-place writes by ``set_value(..., borrow=True)``,
``zero(borrow=True)`` and updates. :func:`watch` records these writes.
"""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from typing import Any

from theano.compile.function_module import Function, FunctionMaker
from theano.compile.sharedvalue import SharedVariable
from theano.gof.link import Container

from optdb.host.api.device_linker import DeviceLinker
from optdb.host.api.patching import PatchGroup, Wrapper, around
from optdb.host.api.user_inplace import is_overwritten_by_user

#: Counts versions; no two versions get the same number, even in different threads.
_versions = itertools.count(1)
_lock = threading.Lock()


def watch() -> None:
    """Record in-place writes from now on, and mark the variables that existing functions may overwrite."""
    with _lock:
        if _patches.installed:
            return
        _patches.install()
        for instance in gc.get_objects():
            if issubclass(type(instance), Function):
                _note(instance)


def version(container: Container) -> int:
    """Return a number that changes each time the variable's value is set."""
    return getattr(container, "optdb_version", 0)


def has_unmarked_writer(container: Container) -> bool:
    """Return whether a function may overwrite the variable's value in place without recording the write."""
    return getattr(container, "optdb_written", False)


@around
def _counting(zero: Callable[..., None], self: SharedVariable, *args: Any, **kwargs: Any) -> None:
    zero(self, *args, **kwargs)
    self.container.optdb_version = next(_versions)


def _counting_property(value: property) -> property:
    set_value = value.fset
    assert set_value is not None, "Theano's containers can be assigned"

    def set_and_count(self: Container, new_value: Any) -> None:
        try:
            set_value(self, new_value)
        finally:
            self.optdb_version = next(_versions)

    return property(value.fget, set_and_count)


@around
def _noting(create: Callable[..., Function], self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
    function = create(self, *args, **kwargs)
    _note(function)
    return function


def _note(function: Function) -> None:
    on_device = isinstance(function.maker.linker, DeviceLinker)
    for spec, var in zip(function.maker.inputs, function.maker.fgraph.inputs):
        # `mutable` covers copies made with `delete_updates=True`, which can still have in-place nodes.
        may_write = not on_device and (spec.update is not None or spec.mutable)
        # A function on a device records its updates, but does not record writes by the user's in-place ops.
        may_write = may_write or is_overwritten_by_user(var)
        if spec.shared and may_write and isinstance(spec.value, Container):
            spec.value.optdb_written = True


_patches = PatchGroup(
    "Shared variables with a copy on a device",
    "from the first function of mode OPENCL on",
    "nothing",
    [
        Wrapper(Container, "value", _counting_property, "the same array may have new contents"),
        Wrapper(Container, "data", _counting_property, "the same array may have new contents"),
        Wrapper(SharedVariable, "zero", _counting, "it may overwrite the array in place"),
        Wrapper(FunctionMaker, "create", _noting, "functions of the host may update a variable in place"),
    ],
)
