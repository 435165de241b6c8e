"""The linker ``opencl``: leaves it to the device how a function is computed.

It can be named before anybody has said which device, so it imports nothing of a device until a function is linked.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from theano.compile.mode import predefined_linkers, register_linker
from theano.gof import FunctionGraph, Variable
from theano.gof.vm import VM_Linker

__all__ = ["NAME", "DeviceLinker"]

#: As in ``Mode(linker='opencl')``.
NAME = "opencl"

_linking = threading.local()


class DeviceLinker(VM_Linker):
    """Computes optimized graphs on an OpenCL device, as `optdb.opencl.simulator.coherent` tells.

    Functions inside of others (loops that stay on the host) are computed by Theano's virtual machine.

    Parameters
    ----------
    device : str
        The name of a context, or which device; ``'auto'`` is the default context's, or else the best one that works.
    **options
        As `VM_Linker` takes them.
    """

    def __init__(self, device: str = "auto", **options: Any) -> None:
        super().__init__(**{"allow_gc": False, "use_cloop": True, **options})
        self.device = device

    def accept(
        self, fgraph: FunctionGraph, no_recycling: Sequence[Variable] | None = None, profile: Any = None
    ) -> DeviceLinker:
        """Return a linker for a graph: this one, if it has no other."""
        if self.fgraph is None or self.fgraph is fgraph:
            return super().accept(fgraph, no_recycling, profile)
        other = self.clone()
        other.fgraph = None
        return other.accept(fgraph, no_recycling, profile)

    def make_thunk(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None
    ) -> tuple[Callable[..., Any], list[Any], list[Any]]:
        """Return what computes the graph, and the containers of its inputs and outputs."""
        if getattr(_linking, "inside", False):
            return super().make_thunk(input_storage, output_storage, storage_map)
        coherent = importlib.import_module("optdb.opencl.simulator.coherent")
        _linking.inside = True
        try:
            return coherent.link_coherent(self, input_storage, output_storage)
        finally:
            _linking.inside = False


if NAME not in predefined_linkers:
    register_linker(NAME, DeviceLinker())
