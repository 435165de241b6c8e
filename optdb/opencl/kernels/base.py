"""Ops with kernels of their own.

When a function is compiled, :class:`OpenCLKernelBase` asks the op for the kernels of a node, compiles them for the
node's context, and hands them to ``run`` at each call, together with the values. Inputs and outputs that live on the
device are ``pyopencl.array.Array``; those of the host are what Theano makes of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import DTypeLike

from optdb.codegen.kernels.kernel import Kernel
from optdb.codegen.kernels.launching import CompiledKernel
from optdb.codegen.kernels.programs import compile_kernels
from optdb.host.graph import Apply, Op, Variable
from optdb.runtime.arrays import Array, empty, fill_zeros
from optdb.runtime.context import Context
from optdb.runtime.sizes import as_int

#: Where the values of outputs go, as the host hands it out: a list of one element for each.
Outputs = Sequence[list[Any]]
#: What launches the kernels of a node, by name.
Kernels = dict[str, CompiledKernel]


class OpenCLKernelBase(Op):
    """An op that launches kernels. Subclasses have ``make_node``, `gpu_kernels` and `run`."""

    _f16_ok = True
    #: Whether all that `run` does is to launch kernels, and to copy by ``optdb.runtime.arrays``: then it need not be
    #: called again while it sees the same (see ``optdb.opencl.planning``).
    repeatable = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "infer_shape" in vars(cls):
            cls.infer_shape = _without_graph(cls.infer_shape)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        """Return the kernels that a node needs.

        Parameters
        ----------
        node : Apply
            What is to be computed; the code may depend on the dtypes and dimensions of its variables.
        name : str
            The op's name, for those who want it in the code.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define gpu_kernels(node, name)")

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        """Compute a node.

        Parameters
        ----------
        node : Apply
            What is to be computed.
        inputs : sequence
            The values of its inputs.
        outputs : sequence of list
            Where the values of the outputs go: ``outputs[0][0] = value``. What was computed there before may be found
            in it, and may be used again, see `output_array`.
        kernels : dict
            From the names that `gpu_kernels` gave to what launches them.
        context : Context
            Where the kernels run.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define run(node, inputs, outputs, kernels, context)")

    def get_context(self, node: Apply) -> Context:
        """Return the context that a node runs on: that of its outputs or else of its inputs."""
        for var in (*node.outputs, *node.inputs):
            context = getattr(var.type, "context", None)
            if context is not None:
                return context
        raise TypeError(f"{self} has neither inputs nor outputs on a device, so it has to define get_context(node)")

    def compiled_kernels(self, node: Apply) -> dict[str, CompiledKernel]:
        """Return the kernels of a node, compiled for its context."""
        name = type(self).__name__
        return compile_kernels(self.gpu_kernels(node, name), self.get_context(node), name)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Compute a node for which no thunk was made, as in a test or in the debugger."""
        self.run(node, inputs, outputs, self.compiled_kernels(node), self.get_context(node))

    def make_thunk(
        self,
        node: Apply,
        storage_map: dict[Variable, list[Any]],
        compute_map: dict[Variable, list[bool]],
        no_recycling: Sequence[Variable],
        impl: str | None = None,
    ) -> Callable[[], None]:
        """Compile the kernels; return what computes the node once."""
        self.prepare_node(node, storage_map, compute_map, "py")
        return self.make_py_thunk(node, storage_map, compute_map, no_recycling)

    def make_py_thunk(
        self,
        node: Apply,
        storage_map: dict[Variable, list[Any]],
        compute_map: dict[Variable, list[bool]],
        no_recycling: Sequence[Variable],
        debug: bool = False,
    ) -> Callable[[], None]:
        """Compile the kernels; return what computes the node once."""
        context = self.get_context(node)
        kernels = self.compiled_kernels(node)
        inputs = [storage_map[var] for var in node.inputs]
        outputs = [storage_map[var] for var in node.outputs]
        computed = [compute_map[var] for var in node.outputs] if compute_map else []

        def thunk() -> None:
            self.run(node, [cell[0] for cell in inputs], outputs, kernels, context)
            for cell in computed:
                cell[0] = True

        thunk.inputs = inputs
        thunk.outputs = outputs
        thunk.perform = self.perform
        thunk.lazy = False
        return thunk


def _without_graph(infer_shape: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as Theano 1.0 calls it, without the graph, which a node knows.

    Later versions have ``infer_shape(self, fgraph, node, shapes)``. Other methods are returned as they are.
    """
    if list(inspect.signature(infer_shape).parameters)[1:2] != ["fgraph"]:
        return infer_shape

    @functools.wraps(infer_shape)
    def infer_shape_of(self: Op, node: Apply, shapes: Sequence[Any]) -> Any:
        return infer_shape(self, getattr(node, "fgraph", None), node, shapes)

    return infer_shape_of


def output_array(storage: list[Any], context: Context, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Return an array for an output, in C order: the one that is there if it fits, else a new one.

    What is in it is left over from before. New memory costs more than most kernels: use it again where possible.
    """
    shape = tuple(map(as_int, shape))
    kept = storage[0]
    is_here = isinstance(kept, Array) and kept.context == context.cl_context
    if is_here and kept.shape == shape and kept.dtype == dtype and kept.flags.c_contiguous:
        return kept
    storage[0] = empty(context, shape, dtype)
    return storage[0]


def output_zeros(storage: list[Any], context: Context, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Return an array for an output like `output_array`, filled with zeros."""
    return fill_zeros(output_array(storage, context, shape, dtype))
