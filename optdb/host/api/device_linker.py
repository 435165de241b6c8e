"""The linker ``opencl``, which modes can name even if there is no device yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from theano.compile.mode import predefined_linkers, register_linker
from theano.gof import FunctionGraph, Variable
from theano.gof.vm import VM_Linker

from optdb.host.api.shallow_pickles import pickle_in_order

NAME = "opencl"

#: The result of `VM_Linker.make_thunk`: the function, and the containers of its inputs and outputs.
Linked = tuple[Callable[..., Any], list[Any], list[Any]]

_linking = threading.local()
_backend: Callable[[DeviceLinker, Any, Any], Linked] | None = None


def register_backend(link: Callable[[DeviceLinker, Any, Any], Linked]) -> None:
    """Register the function that links graphs for devices; it replaces the function registered before.

    The function takes the linker and the storage of the inputs and outputs, and returns the result of a linker's
    ``make_thunk``.
    """
    global _backend
    _backend = link


class DeviceLinker(VM_Linker):
    """Calls the registered backend, which links optimized graphs for a device.

    Inner functions, which run the bodies of loops on the host, are executed by Theano's virtual machine.

    Parameters
    ----------
    device : str
        The name of a context or a device; ``'auto'`` selects the default context's device or, without a default
        context, the best device that works.
    **options
        The options of `VM_Linker`.
    """

    def __init__(self, device: str = "auto", **options: Any) -> None:
        super().__init__(**{"allow_gc": False, "use_cloop": True, **options})
        self.device = device

    def accept(
        self, fgraph: FunctionGraph, no_recycling: Sequence[Variable] | None = None, profile: Any = None
    ) -> DeviceLinker:
        """Return a linker for a graph: this linker if it has no graph yet, else a new linker."""
        pickle_in_order(fgraph)
        if self.fgraph is None or self.fgraph is fgraph:
            return super().accept(fgraph, no_recycling, profile)
        other = self.clone()
        other.fgraph = None
        return other.accept(fgraph, no_recycling, profile)

    def make_thunk(self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None) -> Linked:
        """Return the function that computes the graph, and the containers of its inputs and outputs."""
        if getattr(_linking, "inside", False):
            return super().make_thunk(input_storage, output_storage, storage_map)
        if _backend is None:
            raise RuntimeError(
                f"linker={NAME!r}: no device backend is registered\n"
                "The cure: `import optdb`, or optdb.host.api.device_linker.register_backend(link) for another backend"
            )
        _linking.inside = True
        try:
            return _backend(self, input_storage, output_storage)
        finally:
            _linking.inside = False


if NAME not in predefined_linkers:
    register_linker(NAME, DeviceLinker())
