"""Detects in-place changes to the values of shared variables.

The holder of a copy of a value compares the object in Theano's storage by identity. That misses in-place writes: by
``set_value(..., borrow=True)`` with the same array, by ``zero(borrow=True)``, and by functions that compute the next
value over the present one. :func:`watch` starts to record these.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

from theano.compile.function_module import Function, FunctionMaker
from theano.compile.sharedvalue import SharedVariable
from theano.gof.link import Container

from optdb.host.device_linker import DeviceLinker
from optdb.host.patching import PatchGroup, Wrapper

__all__ = ["unmarked_writer", "version", "watch"]

_lock = threading.Lock()


def watch() -> None:
    """Start to record in-place writes, for good; check the existing functions once."""
    with _lock:
        if _patches.installed:
            return
        _patches.install()
        for instance in gc.get_objects():
            if issubclass(type(instance), Function):
                _note(instance)


def version(container: Container) -> int:
    """Return how often a value was set so far."""
    return getattr(container, "optdb_version", 0)


def unmarked_writer(container: Container) -> bool:
    """Tell whether a function of Theano's own updates the variable, which may happen in place at any time."""
    return getattr(container, "optdb_written", False)


def _counting(change: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(change)
    def change_and_count(self: SharedVariable, *args: Any, **kwargs: Any) -> None:
        change(self, *args, **kwargs)
        self.container.optdb_version = version(self.container) + 1

    return change_and_count


def _noting(create: Callable[..., Function]) -> Callable[..., Function]:
    @functools.wraps(create)
    def create_and_note(self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
        function = create(self, *args, **kwargs)
        _note(function)
        return function

    return create_and_note


def _note(function: Function) -> None:
    if isinstance(function.maker.linker, DeviceLinker):
        return
    for spec in function.maker.inputs:
        if spec.shared and spec.update is not None and isinstance(spec.value, Container):
            spec.value.optdb_written = True


_patches = PatchGroup(
    "Shared variables with a copy on a device",
    "from the first function of mode OPENCL on",
    "nothing",
    [
        Wrapper(SharedVariable, "set_value", _counting, "the same array may have new contents"),
        Wrapper(SharedVariable, "zero", _counting, "it may overwrite the array in place"),
        Wrapper(FunctionMaker, "create", _noting, "functions of the host may update a variable in place"),
    ],
)
