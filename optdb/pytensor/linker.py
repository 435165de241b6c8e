"""The linker of functions that run on a device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.link.basic import JITLinker

from optdb.device.functions.function import FunctionTracer, TracedFunction, Value
from optdb.pytensor import (  # noqa: F401  they register how ops are described
    blas,
    creation,
    elemwise,
    graphs,
    indexing,
    joins,
    linalg,
    processes,
    shape,
)
from optdb.pytensor.dispatch import is_array
from optdb.pytensor.host_groups import HostNodes
from optdb.pytensor.host_notes import HostNote
from optdb.pytensor.narrowing import narrowed
from optdb.pytensor.size_notes import SizeNote
from optdb.pytensor.sources import KEEP_SOURCE, source_of
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.context import Context

#: Rewrites that suit C or numba alone: they overwrite inputs, choose a BLAS, or fuse loops, which the device does.
_EXCLUDED = (
    "cxx_only",
    "BlasOpt",
    "fusion",
    "inplace",
    "local_careduce_fusion",
    "scan_reduce_trace_prealloc",
    # A group of the host is compiled with it.
    "scan_inner_graph",
)


@functools.cache
def default_context() -> Context:
    """Return the context of the default device."""
    return Context("opencl")


class OpenCLLinker(JITLinker):  # type: ignore[misc]  # PyTensor is not installed where types are checked
    """A linker whose functions run on an OpenCL device.

    Parameters
    ----------
    device : str, optional
        Which device, as `python -m optdb devices` lists them; the likely fastest one by default.
    """

    required_rewrites = ("minimum_compile", KEEP_SOURCE)
    incompatible_rewrites = _EXCLUDED

    def __init__(self, *args: Any, device: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.device = device

    @property
    def context(self) -> Context:
        """The context of the linker's device."""
        return default_context() if self.device is None else _context_of(self.device)

    def fgraph_convert(self, fgraph: Any, **kwargs: Any) -> Callable[..., Any]:
        """Return what computes a graph's outputs of its inputs."""
        return OpenCLFunction(fgraph, self.context)

    def jit_compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function: each call of new shapes compiles what it needs."""
        return fn

    def create_thunk_inputs(self, storage_map: dict[Any, list[Any]]) -> list[Any]:
        """Return the storage of the graph's inputs."""
        return [storage_map[var] for var in self.fgraph.inputs]


@functools.cache
def _context_of(device: str) -> Context:
    return Context(device)


class OpenCLFunction:
    """Computes the outputs of a graph on a device.

    Parameters
    ----------
    fgraph : FunctionGraph
        What is computed.
    context : Context
        The context of the device.
    warns : bool
        Whether calls warn where a device gains little.
    """

    def __init__(self, fgraph: Any, context: Context, warns: bool = True) -> None:
        reason = context.unsupported_reason("float64")
        if reason is not None and config.floatX == "float32":
            fgraph = narrowed(fgraph, reason)
        self.fgraph = fgraph
        updated = set((getattr(fgraph, "update_mapping", None) or {}).values())
        resident = [
            isinstance(var, SharedVariable) and position not in updated for position, var in enumerate(fgraph.inputs)
        ]
        #: The nodes that run on the host.
        self.host = HostNodes(source_of(fgraph))
        self._dtypes = [np.dtype(var.type.dtype) if is_array(var) else None for var in fgraph.inputs]
        self.function = TracedFunction(context, self._trace, resident)
        self._note = SizeNote(HostNote(self.function, self.host))
        self._note.done = not warns

    def _trace(self, tracer: FunctionTracer) -> Sequence[Value]:
        return GraphTrace(tracer, self.fgraph, self.host).outputs(self.fgraph)

    def __call__(self, *inputs: Any) -> list[Any]:
        args = [
            value if dtype is None or type(value) is np.ndarray else np.asarray(value, dtype)
            for value, dtype in zip(inputs, self._dtypes)
        ]
        return self.function(args) if self._note.done else self._note.call(args)


processes.install(OpenCLLinker)
