"""How thunks are made for functions with arrays on a device: without a compiler, and without looking for what is known.

What gives or takes arrays on the device has no C code, and small work of the host (see ``small``) needs none. Theano's
linker looks for each input of each node among the outputs, and for numbers of the host that could share a place among
all nodes that follow. In large functions that takes longer than to make the thunks.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from optdb.host.destroy import DestroyHandler
from optdb.host.graph import Apply, FunctionGraph, Op, Variable
from optdb.host.linking import VM_Linker, vm
from optdb.host.patching import Wrapper
from optdb.opencl.planning import host_work
from optdb.opencl.planning.roles import is_small, on_device

_linking = threading.local()


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


def _noting_devices(make_all: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_all)
    def make_all_of_device(self: VM_Linker, *args: Any, **kwargs: Any) -> Any:
        """Link a function; one inside of another one, as Scan has it, decides for itself."""
        outer = getattr(_linking, "device", False)
        _linking.device = has_device(self.fgraph)
        if _linking.device:
            _order_destroyers(self.fgraph)
        outputs = self.fgraph.outputs
        self.fgraph.outputs = Outputs(outputs)
        try:
            return make_all(self, *args, **kwargs)
        finally:
            self.fgraph.outputs = outputs
            _linking.device = outer

    return make_all_of_device


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


def _by_python(make_thunk: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_thunk)
    def make_thunk_beside_device(
        self: Op, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: str | None = None
    ) -> Any:
        """Return what computes a node; by Python, if that is small work beside a device, or of its arrays."""
        # Without a compiler, Theano asks for Python by itself.
        if impl in (None, "py") and getattr(_linking, "device", False):
            if is_small(node):
                node, impl = host_work.without_inplace(node), "py"
            elif any(map(on_device, (*node.inputs, *node.outputs))):
                impl = "py"
        return make_thunk(node.op, node, storage_map, compute_map, no_recycling, impl)

    return make_thunk_beside_device


def _none_beside_device(reallocate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reallocate)
    def calculate_reallocate_info(*args: Any) -> dict[Variable, list[Variable]]:
        """Return which numbers of the host take each other's places; none does beside a device."""
        return {} if getattr(_linking, "device", False) else reallocate(*args)

    return calculate_reallocate_info


PATCHES = (
    Wrapper(VM_Linker, "make_all", _noting_devices, "thunks depend on whether a function has arrays on a device"),
    Wrapper(vm, "calculate_reallocate_info", _none_beside_device, "plans assign memory themselves"),
    Wrapper(Op, "make_thunk", _by_python, "small work beside a device needs no compiler"),
)
