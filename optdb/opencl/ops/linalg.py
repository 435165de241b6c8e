"""Cholesky factorization and triangular solves on the device, which raise the same errors as on the host.

Kernels cannot raise errors. A device op therefore also computes two numbers that describe the error that the host op
would raise, if any. The numbers are copied to the host, where `OpenCLRequire` returns the result or raises the error. A
node that raises changes no shared variable. `Cholesky(on_error="nan")` copies nothing: its result is NaN if a matrix is
not positive definite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.linalg.checks import CheckedCholesky, CheckedSolveTriangular, require_factor, require_solution
from optdb.codegen.linalg.operations import Cholesky
from optdb.codegen.operation import Operation
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.opencl.device import TRIANGULAR
from optdb.opencl.lifting import Inputs, lifts, unsupported_reason, with_pattern
from optdb.opencl.ops.counterpart import cast_to_common
from optdb.opencl.ops.counterpart_base import Performed, on_one_device, to_host_variable
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType

#: The dtypes that matrices may have.
_DTYPES = ("float32", "float64")


class OpenCLCholesky(Shell):
    """The triangular factor of a matrix; if `checked`, a second output contains the numbers for `OpenCLRequire`.

    If the matrix is not positive definite, all elements of its factor are NaN.
    """

    __props__ = ("lower", "checked")
    checks_lengths = True

    def __init__(self, lower: bool = True, checked: bool = False) -> None:
        self.lower = lower
        self.checked = checked

    def make_node(self, x: Any) -> Apply:
        """Return a node for a matrix of float32 or float64."""
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
    """The solution of a triangular system for a vector or a matrix, and the numbers that `OpenCLRequire` checks."""

    __props__ = ("lower",)
    checks_lengths = True

    def __init__(self, lower: bool = True) -> None:
        self.lower = lower

    def make_node(self, a: Any, b: Any) -> Apply:
        """Return a node for a matrix and right-hand sides of float32 or float64, cast to a common dtype."""
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
        """Return a node for a device array and the two numbers, which are copied to the host."""
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
    """Lift a factorization; if the host op raises errors, the device op reads back whether the factorization failed."""
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
    """Lift the solution of a triangular system; as on the host, only `A_structure` determines the triangle."""
    a, b = (as_opencl_variable(x, context_name) for x in inputs)
    solved = OpenCLSolveTriangular(op.A_structure == "lower_triangular")(a, b)
    return with_pattern(OpenCLRequire(solution=True)(*solved), outputs[0])
