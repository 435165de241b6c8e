"""Registration of lifters, and the predicates and helpers that lifters share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, PureOp, Variable
from optdb.host.api.scalars import cast_op
from optdb.lifters.lifter import Lifter, LiftFunction, OpT, Predicate, op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import CounterpartBase, counterpart_class, to_host_variable
from optdb.opencl.registry import get_context
from optdb.opencl.scalar_programs import signature
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType, opencl_type
from optdb.topo.db import register_topo

#: The inputs or outputs of a node, as lifters and their predicates receive them.
Inputs = Sequence[Variable]


def unsupported_reason(context_name: str | None, dtypes: Iterable[str]) -> str | None:
    """Return why a context cannot compute with the given dtypes; None if it can."""
    context = get_context(context_name)
    for dtype in dtypes:
        reason = context.unsupported_reason(dtype)
        if reason is not None:
            return f"it computes in {dtype}, and {reason}"
    return None


def scalar_unsupported_reason(op: Any, context_name: str | None, dtypes: Sequence[str]) -> str | None:
    """Return why a context cannot run a scalar op; None if it can."""
    scalar_signature = signature(op, dtypes)
    return scalar_signature.reason or unsupported_reason(context_name, scalar_signature.computed)


def real_arrays(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    """Reject complex arrays, since ops with their own kernels support only real numbers."""
    for var in (*inputs, *outputs):
        if getattr(var.type, "dtype", "").startswith("complex"):
            return "no complex numbers on the device"
    return None


def floats_only(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    """Reject all dtypes except floating-point dtypes."""
    dtypes = {out.type.dtype for out in outputs}
    wrong = sorted(dtype for dtype in dtypes if not dtype.startswith("float"))
    return f"no {wrong[0]} in this op on the device" if wrong else None


def cast_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    """Reject a second array that cannot be cast to the dtype of the first."""
    x, y = (var.type.dtype for var in inputs[:2])
    return scalar_unsupported_reason(cast_op(x), context_name, [y]) if x != y else None


def array_dtypes(op: PureOp, inputs: Inputs) -> list[str]:
    """Return the distinct dtypes, sorted by name, of the inputs that the op's counterpart takes on the device."""
    device_slots = counterpart_class(op).device_slots(len(inputs))
    return sorted({inputs[i].type.dtype for i in device_slots})


def lifts(
    host_classes: Sequence[type[OpT]], position: float, supports: Predicate[OpT] | None = None
) -> Callable[[LiftFunction[OpT]], Lifter]:
    """Register the decorated function as the lifter of host ops; see `op_lifter`."""

    def register(lift: LiftFunction[OpT]) -> Lifter:
        tags = ("fast_run", "fast_compile", "opencl")
        return register_topo(*tags, db=lifters_db, position=position)(op_lifter(host_classes, supports=supports)(lift))

    return register


def register_counterparts(
    name: str, position: float, host_classes: Sequence[type[OpT]], supports: Predicate[OpT] | None = None
) -> Lifter:
    """Register a lifter for host ops whose counterparts declare everything that the lifter needs.

    `name` is the lifter's name in reports. `position` orders the lifters; for `supports`, see `op_lifter`.
    """

    def lift(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> list[Variable]:
        counterpart = counterpart_class(op).like(op)
        common_dtype = counterpart.common_dtype if isinstance(counterpart, Counterpart) else None
        same_dtype = common_dtype is not None and array_dtypes(op, inputs) == [outputs[0].type.dtype]
        if same_dtype or (common_dtype is None and type(counterpart).make_node is CounterpartBase.make_node):
            return node_like(counterpart, context_name, inputs, outputs)
        return counterpart(*_moved(counterpart, context_name, inputs), return_list=True)

    lift.__name__ = name
    lift.__doc__ = f"Lift {', '.join(each.__name__ for each in host_classes)}."
    return lifts(host_classes, position, supports)(lift)


def node_like(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> list[Variable]:
    """Apply a device op to the inputs of a host node, with the output types that the host op has inferred.

    Calling the device op's ``make_node`` would check the inputs again and take several times as long.
    """
    made = [opencl_type(out.type.dtype, out.type.broadcastable, context_name)() for out in outputs]
    return Apply(op, _moved(op, context_name, inputs), made).outputs


def _moved(op: PureOp, context_name: str | None, inputs: Inputs) -> list[Variable]:
    device_slots = op.device_slots(len(inputs)) if isinstance(op, CounterpartBase) else range(len(inputs))
    return [on_device(x, context_name) if i in device_slots else to_host_variable(x) for i, x in enumerate(inputs)]


def on_device(x: Variable, context_name: str | None) -> Variable:
    """Return a variable in a context, transferred there if needed."""
    is_there = isinstance(x.type, OpenCLArrayType) and x.type.context_name == context_name
    return x if is_there else as_opencl_variable(x, context_name)


def with_pattern(var: Variable, like: Variable) -> Variable:
    """Return `var` with the broadcast pattern of `like`, in which more axes may be broadcastable."""
    pattern = like.type.broadcastable
    if var.type.broadcastable == pattern:
        return var
    return host.Rebroadcast(*enumerate(pattern))(var)
