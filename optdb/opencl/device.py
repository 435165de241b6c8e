"""The description of the OpenCL device for lifting, and the database of the device's lifters.

`lifters_db` is in Theano's main database under the tag ``opencl``. A mode that includes this tag lifts graphs. If the
flag ``optdb.device`` names a device, every mode lifts graphs.
"""

from __future__ import annotations

from typing import Any

from optdb.host.api import ops
from optdb.host.api.config import config
from optdb.host.api.control_flow import Scan
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import PureOp
from optdb.host.api.ops import LINEAR_ALGEBRA, RandomFunction, mrg_uniform
from optdb.host.theano.functions.declared import DeclaredLengths
from optdb.lifters.device import ContextName, Device
from optdb.lifters.inner import lift_inner
from optdb.lifters.lift import GraphToGPUDB
from optdb.opencl.ops.contiguous import opencl_contiguous, opencl_sequence
from optdb.opencl.ops.counterpart_base import counterpart_of
from optdb.opencl.registry import contexts, get_context
from optdb.opencl.transfers import HostFromOpenCL, OpenCLFromHost, OpenCLToOpenCL, as_opencl_variable
from optdb.opencl.type import OpenCLArrayType

#: The position of lifting among Theano's phases.
POSITION = 48.4
TAG = "opencl"

VIEWS = (
    *(ops.DimShuffle, ops.Reshape, ops.Flatten, ops.Subtensor, ops.ExtractDiag),
    *(ops.Rebroadcast, ops.SpecifyShape, DeclaredLengths, ops.Assert, ops.Print),
)
#: The matrix structures for which the device solves linear systems.
TRIANGULAR = ("lower_triangular", "upper_triangular")
HEAVY = (
    *(ops.Dot, ops.Dot22, ops.Dot22Scalar, ops.Gemm, ops.Gemv, ops.CGemv, ops.Ger, ops.CGer, ops.BatchedDot),
    *(ops.SparseBlockGemv, ops.SparseBlockOuter),
    ops.BaseAbstractConv,
    Scan,
)
#: Ops that create arrays. An op that creates an array is lifted if the device needs the array; only `RandomFunction` is
#: never lifted, but reports list it with a reason.
SOURCE_OPS = (ops.Alloc, ops.AllocEmpty, ops.ARange, ops.Eye, ops.Tri, mrg_uniform, RandomFunction)

#: Ops that take device arrays but return results on the host.
HOST_RESULT_OPS = (ops.Shape, ops.Shape_i)

#: Maps ops without a counterpart to the index of the first input that stays on the host when the op is lifted.
FIRST_HOST_INPUT: dict[type[PureOp], int] = {ops.RepeatOp: 1, mrg_uniform: 1}

#: Maps ops that make several passes over their arrays on the host to the benefit that `weight` returns.
PASSES: dict[type[PureOp], float] = {ops.AbstractBatchNormTrain: 4.0, ops.AbstractBatchNormTrainGrad: 6.0}

#: The benefit of a matrix product, a convolution or a loop, measured in elementwise passes over its arrays.
HEAVY_WEIGHT = 10.0


def weight(op: PureOp) -> float:
    """Return the benefit of running an op on the device, measured in elementwise passes over an array."""
    if is_matrix_work(op):
        return HEAVY_WEIGHT
    if isinstance(op, (*VIEWS, *LINEAR_ALGEBRA)):
        return 0.0
    return HEAVY_WEIGHT if isinstance(op, HEAVY) else PASSES.get(type(op), 1.0)


def is_matrix_work(op: PureOp) -> bool:
    """Return whether an op is a Cholesky factorization or a triangular solve that the device supports."""
    return isinstance(op, ops.Cholesky) or (isinstance(op, ops.Solve) and op.A_structure in TRIANGULAR)


def is_host_input(op: PureOp, i: int) -> bool:
    """Return whether input `i` stays on the host when the op is lifted; `op` is a host op or a lifted op."""
    counterpart = counterpart_of(type(op))
    if counterpart is not None:
        return i not in counterpart.device_slots(i + 1)
    return type(op) in FIRST_HOST_INPUT and i >= FIRST_HOST_INPUT[type(op)]


def _default_context() -> Any:
    return contexts.resolve(None) if contexts.default is not None else None


def _ready() -> None:
    if contexts.default is not None:
        get_context(contexts.default)


def _unsupported_reason(dtype: str, context_name: ContextName) -> str | None:
    reason = get_context(context_name).unsupported_reason(dtype)
    if reason is None:
        return None
    cure = "; the cure: THEANO_FLAGS=floatX=float32" if dtype == "float64" else ""
    return f"{context_name} cannot take arrays of {dtype}: {reason}{cure}"


def _notes(context_name: ContextName) -> list[str]:
    precision, profile = config.optdb.matmul_precision, get_context(context_name).profile
    if precision == "highest" or profile.has_tensor_cores:
        return []
    return [f"optdb.matmul_precision={precision} has no effect: {profile.name} has no tensor cores that optdb can use"]


OPENCL = Device(
    name="opencl",
    array_type=OpenCLArrayType,
    from_host=OpenCLFromHost,
    to_host=HostFromOpenCL,
    between=OpenCLToOpenCL,
    as_variable=as_opencl_variable,
    default_context=_default_context,
    ready=_ready,
    unsupported_reason=_unsupported_reason,
    weight=weight,
    source_ops=SOURCE_OPS,
    host_result_ops=HOST_RESULT_OPS,
    is_host_input=is_host_input,
    contiguous=opencl_contiguous,
    sequence=opencl_sequence,
    notes=_notes,
)

lifters_db = GraphToGPUDB(OPENCL)
lift_inner(lifters_db, OPENCL, "fast_run", "fast_compile", TAG)
compile_db().register("opencl_lift", lifters_db, POSITION, TAG)


def follow_flag() -> None:
    """Lift graphs in every mode if ``optdb.device`` names a device."""
    if config.optdb.device != "cpu":
        for name in ("opencl_lift", "opencl_stacking", "opencl_fusion", "opencl_placing", "opencl_updates"):
            compile_db().add_tags(name, "fast_run", "fast_compile")
