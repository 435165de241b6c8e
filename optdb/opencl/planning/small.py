"""Small work of the host is done in Python, without a compiler.

Beside its arrays, a graph on a device computes sizes and indexes. Theano compiles C for each kind of op among these:
from an empty cache that takes longer than all else, and a plan computes most of it but once. So in functions with
arrays on a device, ops that give numbers and vectors of whole numbers alone run by their ``perform``.
"""

from __future__ import annotations

import threading
from typing import Any

from optdb.host.graph import Apply, FunctionGraph, Op
from optdb.host.lifting import is_host_array
from optdb.host.linking import VM_Linker
from optdb.host.patching import Patch
from optdb.opencl.planning.roles import on_device

_linking = threading.local()

_stock_make_all = VM_Linker.make_all
_stock_make_thunk = Op.make_thunk


def make_all(self: VM_Linker, *args: Any, **kwargs: Any) -> Any:
    """Link a function; one inside of another one, as Scan has it, decides for itself."""
    outer = getattr(_linking, "device", False)
    _linking.device = has_device(self.fgraph)
    try:
        return _stock_make_all(self, *args, **kwargs)
    finally:
        _linking.device = outer


def has_device(fgraph: FunctionGraph) -> bool:
    """Tell whether a node of a graph gives an array on the device."""
    return any(on_device(var) for node in fgraph.apply_nodes for var in node.outputs)


def make_thunk(
    self: Op, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: str | None = None
) -> Any:
    """Return what computes a node; by Python, if that is small work beside a device."""
    if impl is None and getattr(_linking, "device", False) and is_small(node):
        impl = "py"
    return _stock_make_thunk(self, node, storage_map, compute_map, no_recycling, impl)


def is_small(node: Apply) -> bool:
    """Tell whether a node gives numbers, or vectors of whole numbers, on the host."""
    if type(node.op).perform is Op.perform or any(map(on_device, node.inputs)):
        return False
    return all(
        is_host_array(var) and (var.type.ndim == 0 or (var.type.ndim == 1 and "int" in var.type.dtype))
        for var in node.outputs
    )


PATCHES = (Patch(VM_Linker, "make_all", make_all), Patch(Op, "make_thunk", make_thunk))
