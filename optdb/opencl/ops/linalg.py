"""Linear algebra: Cholesky factorization and triangular solves on the device, and other ops on the host.

Kernels cannot raise errors. A device op also computes two numbers that describe any error that the host op would raise;
`OpenCLRequire` reads the numbers and raises the error. `OpenCLOnHost` runs other linear algebra ops with LAPACK.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from optdb.codegen.linalg.operations import (
    CheckedCholesky,
    CheckedSolveTriangular,
    Cholesky,
    require_factor,
    require_solution,
)
from optdb.codegen.operation import Operation
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.host.api.variables import Type, as_tensor_variable, is_host_array
from optdb.lifters.transfers import record_transfer
from optdb.opencl.device import TRIANGULAR
from optdb.opencl.kernel_ops.base import Performed
from optdb.opencl.lifting import Inputs, lifts, unsupported_reason, with_pattern
from optdb.opencl.ops.counterpart import cast_to_common
from optdb.opencl.ops.counterpart_base import on_one_device, to_host_variable
from optdb.opencl.ops.shell import Shell, once_per_node, spec_of
from optdb.opencl.transfers import as_opencl_variable, infer_context_name
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.arrays import from_host, seen_by_host, to_host

_DTYPES = ("float32", "float64")


class OpenCLCholesky(Shell):
    """The triangular factor of a matrix; if `checked`, a second output contains the numbers for `OpenCLRequire`.

    If the matrix is not positive definite, all elements of its factor are NaN.
    """

    __props__ = ("lower", "checked")

    def __init__(self, lower: bool = True, checked: bool = False) -> None:
        self.lower = lower
        self.checked = checked

    def make_node(self, x: Any) -> Apply:
        (x,) = on_one_device([x])
        _check_types(self, [x], ([2],))
        faults = [_faults_type(x)()] if self.checked else []
        return Apply(self, [x], [x.type(), *faults])

    def operation(self, node: Apply) -> Operation:
        operation = CheckedCholesky if self.checked else Cholesky
        return operation(self.get_context(node), spec_of(node.inputs[0]), self.lower)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[0], (2,)][: len(node.outputs)]


class OpenCLSolveTriangular(Shell):
    """The solution of a triangular system for one or more right-hand sides, and the numbers for `OpenCLRequire`."""

    __props__ = ("lower",)

    def __init__(self, lower: bool = True) -> None:
        self.lower = lower

    def make_node(self, a: Any, b: Any) -> Apply:
        """Return a node for a float32 or float64 matrix and right-hand sides, cast to a common dtype."""
        a, b = cast_to_common(on_one_device([a, b]), "upcast")
        _check_types(self, [a, b], ([2], [1, 2]))
        return Apply(self, [a, b], [b.type(), _faults_type(a)()])

    def operation(self, node: Apply) -> Operation:
        a, b = map(spec_of, node.inputs)
        return CheckedSolveTriangular(self.get_context(node), a, b, self.lower, vectors=b.ndim == 1)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[1], (2,)]


class OpenCLRequire(Performed, Op):
    """Returns a factor or a solution unchanged, or raises the error that the accompanying numbers describe."""

    __props__ = ("solution",)
    view_map = {0: [0]}  # noqa: RUF012 (the host's protocol)

    def __init__(self, solution: bool) -> None:
        #: Whether the input is a solution rather than a factor.
        self.solution = solution

    def make_node(self, x: Any, faults: Any) -> Apply:
        (x,) = on_one_device([x])
        return Apply(self, [x, to_host_variable(faults)], [x.type()])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        x, faults = inputs
        if self.solution:
            require_solution(faults, x.shape[0])
        else:
            require_factor(faults)
        outputs[0][0] = x

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[0]]


def _faults_type(x: Variable) -> OpenCLArrayType:
    return OpenCLArrayType("int32", (False,), x.type.context_name)


def _check_types(op: Op, arrays: Sequence[Variable], ranks: Sequence[Sequence[int]]) -> None:
    for x, allowed in zip(arrays, ranks, strict=True):
        if x.type.dtype not in _DTYPES or x.type.ndim not in allowed:
            raise TypeError(f"{op} takes matrices of float32 or float64 on the device, not {x.type}")


def _matrix_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtypes = [x.type.dtype for x in (*inputs, *outputs)]
    wrong = [dtype for dtype in dtypes if dtype not in _DTYPES]
    return f"no linear algebra of {wrong[0]} on the device" if wrong else unsupported_reason(context_name, dtypes)


@lifts([host.Cholesky], 96, _matrix_unsupported_reason)
def lift_cholesky(op: host.Cholesky, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a factorization; if the host op raises errors, add an `OpenCLRequire`, which raises them."""
    x = as_opencl_variable(inputs[0], context_name)
    if op.on_error == "nan":
        return OpenCLCholesky(op.lower)(x)
    return OpenCLRequire(solution=False)(*OpenCLCholesky(op.lower, checked=True)(x))


def _system_unsupported_reason(op: host.Solve, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if op.A_structure not in TRIANGULAR:
        return f"systems of {op.A_structure} matrices are solved on the host"
    return _matrix_unsupported_reason(op, context_name, inputs, outputs)


@lifts([host.Solve], 97, _system_unsupported_reason)
def lift_solve(op: host.Solve, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a triangular solve to the device; as on the host, only `A_structure` determines the triangle."""
    a, b = (as_opencl_variable(x, context_name) for x in inputs)
    solved = OpenCLSolveTriangular(op.A_structure == "lower_triangular")(a, b)
    return with_pattern(OpenCLRequire(solution=True)(*solved), outputs[0])


class OpenCLOnHost(Performed, Op):
    """A host op applied to device arrays; it runs ``perform`` and does not overwrite its inputs.

    If the device shares the host's memory, the op maps its inputs; otherwise it copies them. Results are copied.
    `output_types` are the types of the host op's outputs. Integer outputs, such as ranks, stay on the host.
    """

    __props__ = ("op", "output_types")
    repeatable = False

    def __init__(self, op: PureOp, output_types: Sequence[Type]) -> None:
        if getattr(op, "destroy_map", None):
            raise TypeError(f"{op} overwrites its inputs, which are on the device")
        self.op = op
        self.output_types = tuple(output_types)

    def __str__(self) -> str:
        return f"OpenCLOnHost{{{self.op}}}"

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node for inputs of which at least one is on the device; inputs on the host stay there."""
        taken = [x if isinstance(x, Variable) else as_tensor_variable(x) for x in inputs]
        device_inputs = [x for x in taken if isinstance(x.type, OpenCLArrayType)]
        if not device_inputs:
            raise TypeError(f"{self} takes device arrays; for host arrays, use {self.op} itself")
        context_name = infer_context_name(*device_inputs)
        outputs = [
            kind()
            if np.dtype(kind.dtype).kind not in "fc"
            else OpenCLArrayType(kind.dtype, kind.broadcastable, context_name)()
            for kind in self.output_types
        ]
        return Apply(self, taken, outputs)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        results: list[list[Any]] = [[None] for _ in outputs]
        with ExitStack() as mapped:
            values = [self._value(mapped, var, x) for var, x in zip(node.inputs, inputs, strict=True)]
            self.op.perform(self._on_host(node), values, results)
            # Keep the inputs mapped until here, since a result may be a view of an input.
            for storage, (result,), var in zip(outputs, results, node.outputs, strict=True):
                storage[0] = self._result(var, result, storage[0])

    def _value(self, mapped: ExitStack, var: Variable, x: Any) -> Any:
        if not isinstance(var.type, OpenCLArrayType):
            return x
        if var.type.context.profile.shares_host_memory:
            return mapped.enter_context(seen_by_host(x))
        record_transfer(self, x.nbytes)
        return to_host(x)

    def _result(self, var: Variable, result: Any, before: Any) -> Any:
        value = np.asarray(result, var.type.dtype)
        if not isinstance(var.type, OpenCLArrayType):
            return value.copy()
        record_transfer(self, value.nbytes)
        return from_host(var.type.context, value, before)

    @once_per_node
    def _on_host(self, node: Apply) -> Apply:
        kinds = [x.type.host_type if isinstance(x.type, OpenCLArrayType) else x.type for x in node.inputs]
        return Apply(self.op, [kind() for kind in kinds], [kind() for kind in self.output_types])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        if not hasattr(self.op, "infer_shape"):
            raise host.ShapeError(f"{self.op} does not define the shapes of its outputs")
        return self.op.infer_shape(node, shapes)

    def L_op(  # noqa: N802 (the host's name)
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> Any:
        return self.op.L_op(*[list(map(_as_on_host, group)) for group in (inputs, outputs, output_grads)])

    def R_op(self, inputs: Sequence[Variable], eval_points: Sequence[Variable | None]) -> Any:  # noqa: N802
        points = [None if point is None else _as_on_host(point) for point in eval_points]
        return self.op.R_op(list(map(_as_on_host, inputs)), points)


def _as_on_host(x: Variable) -> Variable:
    return as_tensor_variable(x) if isinstance(x.type, OpenCLArrayType) else x


def _arrays_alone(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if all(is_host_array(x) or isinstance(x.type, OpenCLArrayType) for x in (*inputs, *outputs)):
        return None
    return "only arrays can be read by the host in place"


@lifts(list(host.LINEAR_ALGEBRA), 98, _arrays_alone)
def lift_linear_algebra(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift an op to `OpenCLOnHost`, which runs the op on the host; scalars and integer arrays stay on the host."""
    taken = [as_opencl_variable(x, context_name) if _moves(x) else x for x in inputs]
    lifted = OpenCLOnHost(op, [out.type for out in outputs])
    return lifted(*taken, return_list=True)


def _moves(x: Variable) -> bool:
    return isinstance(x.type, OpenCLArrayType) or (x.type.ndim > 0 and x.type.dtype.startswith(("float", "complex")))
