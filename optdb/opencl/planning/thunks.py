"""How thunks are made for functions with arrays on a device: without a compiler, and without looking for what is known.

What gives or takes arrays on the device has no C code, and small work of the host (see ``small``) needs none. Theano's
linker looks for each input of each node among the outputs, and for numbers of the host that could share a place among
all nodes that follow. In large functions that takes longer than to make the thunks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from optdb.host.destroy import DestroyHandler
from optdb.host.graph import Apply, FunctionGraph, Op, Variable
from optdb.host.linking import VM_Linker, vm
from optdb.host.patching import Patch
from optdb.opencl.planning import small
from optdb.opencl.planning.roles import is_small, on_device

_linking = threading.local()

_stock_make_all = VM_Linker.make_all
_stock_make_thunk = Op.make_thunk
_stock_reallocate = vm.calculate_reallocate_info


class Outputs(list):
    """The outputs of a graph, which knows of a variable at once whether it is one.

    Parameters
    ----------
    variables : iterable of Variable
        The outputs.
    """

    def __init__(self, variables: Iterable[Variable]) -> None:
        super().__init__(variables)
        self._known = frozenset(self)

    def __contains__(self, var: object) -> bool:
        return var in self._known


def make_all(self: VM_Linker, *args: Any, **kwargs: Any) -> Any:
    """Link a function; one inside of another one, as Scan has it, decides for itself."""
    outer = getattr(_linking, "device", False)
    _linking.device = has_device(self.fgraph)
    if _linking.device:
        _order_destroyers(self.fgraph)
    outputs = self.fgraph.outputs
    self.fgraph.outputs = Outputs(outputs)
    try:
        return _stock_make_all(self, *args, **kwargs)
    finally:
        self.fgraph.outputs = outputs
        _linking.device = outer


def _order_destroyers(fgraph: FunctionGraph) -> None:
    """See to it that nodes that overwrite a value come behind those that read it; in a copy of a function, none does.

    `Function.copy` copies the graph without what orders its nodes.
    """
    in_place = any(getattr(node.op, "destroy_map", None) for node in fgraph.apply_nodes)
    if in_place and not hasattr(fgraph, "destroy_handler"):
        fgraph.attach_feature(DestroyHandler())


def has_device(fgraph: FunctionGraph) -> bool:
    """Tell whether a node of a graph gives an array on the device."""
    return any(on_device(var) for node in fgraph.apply_nodes for var in node.outputs)


def make_thunk(
    self: Op, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: str | None = None
) -> Any:
    """Return what computes a node; by Python, if that is small work beside a device, or of its arrays."""
    if impl is None and getattr(_linking, "device", False):
        if is_small(node):
            node, impl = small.apart(node), "py"
        elif any(map(on_device, (*node.inputs, *node.outputs))):
            impl = "py"
    return _stock_make_thunk(node.op, node, storage_map, compute_map, no_recycling, impl)


def calculate_reallocate_info(*args: Any) -> dict[Variable, list[Variable]]:
    """Return which numbers of the host take each other's places; none does beside a device."""
    return {} if getattr(_linking, "device", False) else _stock_reallocate(*args)


PATCHES = (
    Patch(VM_Linker, "make_all", make_all),
    Patch(vm, "calculate_reallocate_info", calculate_reallocate_info),
    Patch(Op, "make_thunk", make_thunk),
    *small.PATCHES,
)
