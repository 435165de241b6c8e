"""Ops with their own kernels, and checks of arrays against their types.

:class:`OpenCLKernelBase` compiles a node's kernels when a function is compiled, and passes them to ``run`` in each
call. Values on the device are ``pyopencl.array.Array`` objects. A broadcastable axis must have length 1, but Theano's
`Split` and users' ops can violate this; a kernel would then access memory out of bounds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from optdb.codegen.kernels.kernel import Kernel
from optdb.codegen.kernels.launching import CompiledKernel
from optdb.codegen.kernels.programs import compile_kernels
from optdb.codegen.operation import Kernels, Outputs
from optdb.host.api.graph import Apply, Op, Variable
from optdb.host.api.linking import as_thunk
from optdb.host.api.testvalues import optional_test_values
from optdb.runtime.context import Context

if TYPE_CHECKING:
    #: Base class of mixins that are listed before a host op's class.
    BeforeOp = Op
else:
    BeforeOp = object


def promised_axes(variables: Sequence[Variable]) -> list[tuple[int, int]]:
    """Return, for each broadcastable axis of the variables, the variable's index and the axis."""
    patterns = [getattr(var.type, "broadcastable", ()) for var in variables]
    return [(index, axis) for index, pattern in enumerate(patterns) for axis, flag in enumerate(pattern) if flag]


def check_lengths(
    op: Any,
    variables: Sequence[Variable],
    values: Sequence[Any],
    axes: Sequence[tuple[int, int]] | None = None,
    empty: bool = False,
) -> None:
    """Raise ValueError unless broadcastable axes have length 1; `empty` also allows 0, since then no kernel runs.

    `op` is the op that relies on the lengths, or a description of it for the error message. `axes` is the result of
    `promised_axes` for the variables, if it is known.
    """
    for index, axis in promised_axes(variables) if axes is None else axes:
        length = values[index].shape[axis]
        # Compare with 1 first: while a function is traced, each comparison of a symbolic length becomes a guard.
        if length != 1 and not (empty and length == 0):
            raise ValueError(_broken_promise(op, index, variables[index], axis, length))


def check_kinds(op: Any, variables: Sequence[Variable], values: Sequence[Any]) -> None:
    """Check that device arrays have the dtypes and numbers of dimensions for which kernels are compiled.

    Raises TypeError for the first output with a different dtype or number of dimensions. Values of host variables are
    not checked.
    """
    for index, (var, value) in enumerate(zip(variables, values, strict=True)):
        if not hasattr(var.type, "context"):
            continue
        seen = (getattr(value, "dtype", None), getattr(value, "ndim", None))
        if seen != (var.type.numpy_dtype, var.type.ndim):
            raise TypeError(
                f"{op} returned output {index} of type {type(value).__name__}, dtype {seen[0]} and {seen[1]} "
                f"dimensions, but its make_node declares {var.type}.\n"
                "The cure: allocate the output with optdb.opencl.kernel_ops.output_array, with that dtype and as "
                "many lengths, or correct make_node"
            )


def _broken_promise(op: Any, index: int, var: Variable, axis: int, length: int) -> str:
    called = var.name or (f"input {index}" if var.owner is None else f"output {var.index} of {var.owner.op}")
    return (
        f"{op} takes {called}, of type {var.type}: axis {axis} is broadcastable, which declares length 1, but the "
        f"array has length {length}.\n"
        f"The cure: apply theano.tensor.unbroadcast(x, {axis}) to the array from which this one is computed, before "
        "the op that changes the length"
    )


class Performed(BeforeOp):
    """A device op that runs in Python and never uses the host op's C code."""

    #: Whether the op does nothing but launch kernels, and copy arrays with ``optdb.runtime.arrays``. A plan can replay
    #: the commands of such an op as long as the op's inputs stay the same (see ``optdb.device.plans``).
    repeatable = True
    #: The parameters of the host op's C code.
    params_type = None
    _f16_ok = True

    def make_thunk(
        self, node: Apply, storage_map: Any, compute_map: Any, no_recycling: Any, impl: str | None = None
    ) -> Any:
        self.prepare_node(node, storage_map, compute_map, "py")
        return self.make_py_thunk(node, storage_map, compute_map, no_recycling)


class OpenCLKernelBase(Performed, Op):
    """An op that launches kernels. Subclasses define ``make_node``, `gpu_kernels` and `run`."""

    #: Whether `run` checks that broadcastable axes have length 1, or does not rely on these lengths. If `run` does
    #: neither, the arrays' lengths are checked against their types before `run` is called, and the results' dtypes are
    #: checked afterwards.
    checks_lengths = False
    #: Whether the kernels depend on the layouts of arrays, so that a node has none before it runs.
    schedules_kernels = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "infer_shape" in vars(cls):
            cls.infer_shape = _without_graph(cls.infer_shape)  # type: ignore[method-assign]  # the subclass's own

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        with optional_test_values():
            return super().__call__(*inputs, **kwargs)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        """Return the kernels that a node needs.

        Parameters
        ----------
        node : Apply
            The node to run; the code may depend on the dtypes and numbers of dimensions of its variables.
        name : str
            The op's name, which the code may use.
        """
        raise NotImplementedError(f"{type(self).__name__} must define gpu_kernels(node, name)")

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        """Compute a node.

        Parameters
        ----------
        node : Apply
            The node to run.
        inputs : sequence
            The values of the node's inputs.
        outputs : sequence of list
            The storage cells for the outputs, which are set as in ``outputs[0][0] = value``. A cell may hold the value
            from an earlier call, which may be reused; see `output_array`.
        kernels : dict
            Maps the names of `Kernel` objects to compiled kernels.
        context : Context
            The context in which the kernels run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run(node, inputs, outputs, kernels, context)")

    def get_context(self, node: Apply) -> Context:
        """Return the context in which a node runs: the context of its outputs, or else of its inputs."""
        for var in (*node.outputs, *node.inputs):
            context = getattr(var.type, "context", None)
            if context is not None:
                return context
        raise TypeError(f"{self} has neither inputs nor outputs on a device, so it must define get_context(node)")

    def reads_tables_alone(self, node: Apply) -> bool:
        """Tell whether host values are used only through tables; see `optdb.codegen.operation.Operation`."""
        return False

    def compiled_kernels(self, node: Apply) -> dict[str, CompiledKernel]:
        name = type(self).__name__
        return compile_kernels(self.gpu_kernels(node, name), self.get_context(node), name)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        """Run a node without a thunk, for example in a test or a debugger."""
        run = self._checked_run(node, self.compiled_kernels(node), self.get_context(node))
        run(inputs, outputs)

    def make_py_thunk(
        self,
        node: Apply,
        storage_map: dict[Variable, list[Any]],
        compute_map: dict[Variable, list[bool]],
        no_recycling: Sequence[Variable],
        debug: bool = False,
    ) -> Callable[[], None]:
        run = self._checked_run(node, self.compiled_kernels(node), self.get_context(node))
        inputs = [storage_map[var] for var in node.inputs]
        outputs = [storage_map[var] for var in node.outputs]
        computed = [compute_map[var] for var in node.outputs] if compute_map else []

        def thunk() -> None:
            run([cell[0] for cell in inputs], outputs)
            for cell in computed:
                cell[0] = True

        return as_thunk(thunk, inputs, outputs, perform=self.perform)

    def _checked_run(self, node: Apply, kernels: Kernels, context: Context) -> Callable[[Sequence[Any], Outputs], None]:
        """Return a function that checks inputs and outputs against their types and calls `run` for a node."""
        promised = [
            (index, axis) for index, axis in promised_axes(node.inputs) if hasattr(node.inputs[index].type, "context")
        ]

        def run(inputs: Sequence[Any], outputs: Outputs) -> None:
            try:
                self.run(node, inputs, outputs, kernels, context)
            except ValueError:
                # If `run` failed because an array does not conform to its type, raise an error that names this array
                # instead.
                check_lengths(self, node.inputs, inputs, promised)
                raise

        def run_checked(inputs: Sequence[Any], outputs: Outputs) -> None:
            check_lengths(self, node.inputs, inputs, promised)
            self.run(node, inputs, outputs, kernels, context)
            check_kinds(self, node.outputs, [cell[0] for cell in outputs])

        return run if self.checks_lengths else run_checked


def _without_graph(infer_shape: Callable[..., Any]) -> Callable[..., Any]:
    """Return an ``infer_shape`` with Theano 1.0's signature; later versions also pass `fgraph`."""
    if list(inspect.signature(infer_shape).parameters)[1:2] != ["fgraph"]:
        return infer_shape

    @functools.wraps(infer_shape)
    def infer_shape_of(self: Op, node: Apply, shapes: Sequence[Any]) -> Any:
        return infer_shape(self, getattr(node, "fgraph", None), node, shapes)

    return infer_shape_of
