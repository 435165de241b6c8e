"""The linker for functions that run on a device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.link.basic import JITLinker
from pytensor.link.utils import raise_with_op
from pytensor.scan.rewriting.inner_graph import functional_rewrite_scan_inner_graph, rewrite_scan_inner_graph

from optdb.device.functions.function import TracedFunction
from optdb.device.functions.host_parts import Value
from optdb.device.functions.shared_values import Cell, ValueOnDevice, is_same_memory
from optdb.device.functions.tracer import FunctionTracer
from optdb.pytensor import (  # noqa: F401  these modules register descriptions of ops
    elemwise,
    indexing,
    lengths,
    linalg,
    loops,
    operations,
    processes,
    random_variables,
    shape,
)
from optdb.pytensor.call_warnings import HostNote, SizeNote
from optdb.pytensor.dispatch import is_array
from optdb.pytensor.host_groups import HostNodes
from optdb.pytensor.narrowing import narrowed
from optdb.pytensor.shared_variables import let_hosts_fetch
from optdb.pytensor.sources import KEEP_SOURCE, source_of
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.context import Context
from optdb.runtime.devices import request_in_caller

#: The values of the option `random`, which applies to random variables that PyTensor draws by rejection sampling.
_RANDOM = ("exact", "device")
#: Rewrites for C or numba, which overwrite inputs, choose a BLAS, or fuse loops.
_EXCLUDED = ("cxx_only", "BlasOpt", "fusion", "inplace", "local_careduce_fusion", "scan_reduce_trace_prealloc")


@functools.cache
def _context_of(device: str) -> Context:
    return Context(device)


class OpenCLLinker(JITLinker):  # type: ignore[misc]  # PyTensor is not installed where types are checked
    """A linker whose functions run on an OpenCL device.

    Parameters
    ----------
    device : str, optional
        Name of the device, as listed by `python -m optdb devices`; by default, the device that is likely to be the
        fastest.
    random : str
        Either 'exact' or 'device'; see :func:`optdb.pytensor.opencl_mode`.
    """

    required_rewrites = ("minimum_compile", "scan_save_mem_no_prealloc", KEEP_SOURCE)
    incompatible_rewrites = _EXCLUDED

    def __init__(self, *args: Any, device: str | None = None, random: str = "exact", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.device = device
        if random not in _RANDOM:
            raise ValueError(f"random={random!r}: it is one of {', '.join(map(repr, _RANDOM))}")
        self.random = random

    @property
    def context(self) -> Context:
        return _context_of(self.device or "opencl")

    def fgraph_convert(self, fgraph: Any, **kwargs: Any) -> Computation:
        """Return the object that computes a graph's outputs from its inputs."""
        return OpenCLFunction(fgraph, self.context, draws_on_device=self.random == "device")

    def jit_compile(self, fn: Computation) -> Computation:
        """Return the function, which compiles itself for new shapes."""
        return fn

    def create_thunk_inputs(self, storage_map: dict[Any, list[Any]]) -> list[Any]:
        return [storage_map[var] for var in self.fgraph.inputs]

    def create_jitable_thunk(
        self, compute_map: Any, order: Any, input_storage: Any, output_storage: Any, storage_map: dict[Any, list[Any]]
    ) -> tuple[list[Any], list[Any], Computation]:
        """Return the only thunk, the node named in errors, and the computation."""
        computation = self.fgraph_convert(self.fgraph)
        thunk = DeviceThunk(self.fgraph, computation, self.create_thunk_inputs(storage_map))
        return [thunk], thunk.nodes, computation


class Computation(Protocol):
    """The interface for executing a function's calls."""

    def run(self, cells: Sequence[Cell]) -> Sequence[Any]:
        """Run the computation on the inputs in `cells`, store the next values there, and return the outputs.

        Outputs that are next values are placeholders.
        """


class DeviceThunk:
    """The thunk of a function, which computes the graph and updates the inputs."""

    #: PyTensor's function need not store updates, because the thunk stores them.
    need_update_inputs = False
    lazy = False

    def __init__(self, fgraph: Any, computation: Computation, cells: Sequence[Cell]) -> None:
        self._fgraph = fgraph
        self.run = computation.run
        self.inputs = cells
        self.outputs: list[Cell] = []
        #: The node named in errors: the owner of the first computed output.
        self.nodes = [var.owner for var in fgraph.outputs if var.owner is not None][:1]

    def __call__(self) -> Sequence[Any]:
        try:
            return self.run(self.inputs)
        except Exception:
            if self.nodes:
                raise_with_op(self._fgraph, self.nodes[0], self)
            raise


_ARRAYS = frozenset({np.ndarray, ValueOnDevice})


class OpenCLFunction:
    """Computes a graph on a device; with `warns`, it warns if the device is of little benefit."""

    def __init__(self, fgraph: Any, context: Context, warns: bool = True, draws_on_device: bool = False) -> None:
        #: Maps an output's index to the position of the input that the output updates.
        self.updates: dict[int, int] = dict(getattr(fgraph, "update_mapping", None) or {})
        reason = context.unsupported_reason("float64")
        if reason is not None and config.floatX == "float32":
            fgraph = narrowed(fgraph, reason)
        self.fgraph = fgraph
        self._draws_on_device = draws_on_device
        self._updated = set(self.updates.values())
        if not is_same_memory(context):
            let_hosts_fetch()
        resident = [isinstance(var, SharedVariable) for var in fgraph.inputs]
        self.host = HostNodes(source_of(fgraph))
        #: Positions and dtypes of the inputs that are arrays.
        self._arrays = [(n, np.dtype(var.type.dtype)) for n, var in enumerate(fgraph.inputs) if is_array(var)]
        self.function = TracedFunction(context, self._trace, resident, updates=self.updates)
        self._note = SizeNote(HostNote(self.function, self.host))
        self._note.done = not warns

    def _trace(self, tracer: FunctionTracer) -> Sequence[Value]:
        trace = GraphTrace(tracer, self.fgraph, self.host, draws_on_device=self._draws_on_device)
        return trace.outputs(self.fgraph)

    def run(self, cells: Sequence[Cell]) -> list[Any]:
        """Run the computation; the output of an update is None."""
        cells = self._taken(cells)
        return self.function.run(cells) if self._note.done else self._note.call(cells)

    def call_n_times(self, cells: Sequence[Cell], times: int) -> list[Any]:
        return self.function.call_n_times(self._taken(cells), times)

    def begin(self, cells: Sequence[Cell]) -> tuple[list[Any], list[Any]]:
        return self.function.begin(self._taken(cells))

    def _taken(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return cells that no other thread overwrites; all cells are copies, except those of updated inputs."""
        taken = [[cell[0]] for cell in cells]
        for position in self._updated:
            taken[position] = cells[position]
        for position, dtype in self._arrays:
            value = taken[position][0]
            if type(value) not in _ARRAYS:
                taken[position][0] = np.asarray(value, dtype)
        return taken


request_in_caller()
rewrite_scan_inner_graph.register(OpenCLLinker)(functional_rewrite_scan_inner_graph)
processes.install(OpenCLLinker)
