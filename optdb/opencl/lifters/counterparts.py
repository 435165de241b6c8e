"""Lifters of ops that have counterparts, input for input: a table, and the reasons for unsupported cases.

Convolutions have counterparts, too; linear algebra is computed by the host for the device.
"""

from __future__ import annotations

from typing import Any

from optdb.codegen.searching import compared_in
from optdb.host.api import ops
from optdb.host.api.graph import Op, Variable
from optdb.host.api.lifting import is_host_array
from optdb.host.api.ops import LINEAR_ALGEBRA
from optdb.host.api.scalars import add, cast_op, upcast
from optdb.opencl.contexts import get_context
from optdb.opencl.lifters.support import (
    Inputs,
    array_dtypes,
    floats_only,
    lifts,
    on_device,
    real_arrays,
    register_counterparts,
    scalar_unsupported_reason,
    unsupported_reason,
)
from optdb.opencl.ops import (  # noqa: F401  which define the counterparts
    advanced,
    axes,
    batch_norm,
    blas,
    blocks,
    conv,
    diag,
    fft,
    neighbours,
    parts,
    pool,
    softmax,
    sort,
    views,
)
from optdb.opencl.ops.counterpart import cast_to_common
from optdb.opencl.ops.counterpart_base import counterpart_of
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.on_host import OpenCLOnHost
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType


def _part_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = (var.type.dtype for var in inputs[:2])
    return scalar_unsupported_reason(cast_op(x), context_name, [y]) if x != y else None


def _change_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    x, y = (var.type.dtype for var in inputs[:2])
    if op.set_instead_of_inc:
        return _part_unsupported_reason(op, context_name, inputs, outputs)
    return advanced.adding_unsupported_reason(x, y) or scalar_unsupported_reason(add, context_name, [x, y])


def _pool_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtype = inputs[0].type.dtype
    return f"no pooling of {dtype} on the device" if dtype == "bool" or dtype.startswith("complex") else None


def _pool_gradient_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtypes = array_dtypes(op, inputs)
    return f"it mixes {' and '.join(dtypes)}" if len(dtypes) > 1 else floats_only(op, context_name, inputs, outputs)


def _patches_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    whole = all("int" in x.type.dtype for x in inputs[1:])
    return None if whole else "the patches' shape and step are no whole numbers"


def _normalization_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    ndim = inputs[0].type.ndim
    device_slots = counterpart_of(type(op)).device_slots(len(inputs))
    if min(op.axes) < 0 or max(op.axes) >= ndim:
        return f"there are no axes {op.axes} in an array of {ndim} dimensions"
    if any(x.type.ndim for i, x in enumerate(inputs) if i not in device_slots):
        return "epsilon or the factor of the running averages is an array"
    if len(array_dtypes(op, inputs)) > 1:
        return "its arrays are of different dtypes"
    return floats_only(op, context_name, inputs, outputs)


def _training_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    reason = _normalization_unsupported_reason(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, ["float64"])


def _draws_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    for x in inputs[:2]:
        if not x.type.dtype.startswith("float"):
            return f"probabilities and random numbers are floats on the device, not {x.type.dtype}"
    return real_arrays(op, context_name, inputs, outputs) or unsupported_reason(context_name, ["float64"])


def _sort_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if op.order is not None:
        return "sorting by fields is for arrays of records, which no device has"
    return real_arrays(op, context_name, inputs, outputs)


def _search_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if len(inputs) == 3:
        return "a sorter is checked on the host"
    reason = real_arrays(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, [compared_in(*(var.type.dtype for var in inputs))])


_PRODUCTS = (
    *(ops.Dot, ops.BatchedDot, ops.Dot22, ops.Dot22Scalar, ops.Gemm, ops.Gemv, ops.CGemv),
    *(ops.Ger, ops.CGer, ops.ScipyGer),
)
_SOFTMAX = (ops.Softmax, ops.LogSoftmax, ops.SoftmaxWithBias, ops.SoftmaxGrad)
_CROSSENTROPY = (ops.CrossentropySoftmaxArgmax1HotWithBias, ops.CrossentropySoftmax1HotWithBiasDx)
_LOOKUPS = (ops.CrossentropyCategorical1Hot, ops.CrossentropyCategorical1HotGrad)
_POOL_GRADIENTS = (ops.MaxPoolGrad, ops.AveragePoolGrad, ops.DownsampleFactorMaxGradGrad, ops.MaxPoolRop)
_CHOICES = (ops.ChoiceFromUniform, ops.MultinomialWOReplacementFromUniform)
_TRAINING = (ops.AbstractBatchNormTrain, ops.AbstractBatchNormTrainGrad)

for _name, _position, _classes, _reason in (
    ("lift_flatten", 25, [ops.Flatten], None),
    ("lift_diagonal", 26, [ops.ExtractDiag], None),
    ("lift_print", 28, [ops.Print], None),
    ("lift_tile", 36, [ops.Tile], None),
    ("lift_fill_diagonal", 37, [ops.FillDiagonal, ops.FillDiagonalOffset], None),
    ("lift_join", 40, [ops.Join], None),
    ("lift_split", 41, [ops.Split], None),
    ("lift_inc_subtensor", 42, [ops.IncSubtensor], _part_unsupported_reason),
    ("lift_take", 43, [ops.AdvancedSubtensor1], None),
    ("lift_change_of_rows", 44, [ops.AdvancedIncSubtensor1], _part_unsupported_reason),
    ("lift_advanced", 45, [ops.AdvancedSubtensor], None),
    ("lift_masked", 46, [ops.AdvancedBooleanSubtensor], None),
    ("lift_change", 47, [ops.AdvancedIncSubtensor, ops.AdvancedBooleanIncSubtensor], _change_unsupported_reason),
    ("lift_product", 50, _PRODUCTS, floats_only),
    ("lift_softmax", 51, _SOFTMAX, floats_only),
    ("lift_crossentropy", 54, _CROSSENTROPY, None),
    ("lift_lookup", 55, _LOOKUPS, floats_only),
    ("lift_product_of_blocks", 57, [ops.SparseBlockGemv], floats_only),
    ("lift_outer_products_of_blocks", 58, [ops.SparseBlockOuter], floats_only),
    ("lift_pool", 60, [ops.Pool], _pool_unsupported_reason),
    ("lift_pool_gradient", 61, _POOL_GRADIENTS, _pool_gradient_unsupported_reason),
    ("lift_images2neibs", 62, [ops.Images2Neibs], _patches_unsupported_reason),
    ("lift_batch_norm_training", 63, _TRAINING, _training_unsupported_reason),
    ("lift_batch_norm_inference", 64, [ops.AbstractBatchNormInference], _normalization_unsupported_reason),
    ("lift_multinomial", 81, [ops.MultinomialFromUniform], _draws_unsupported_reason),
    ("lift_choice", 82, _CHOICES, _draws_unsupported_reason),
    ("lift_cumulation", 90, [ops.CumOp], real_arrays),
    ("lift_sort", 91, [ops.SortOp, ops.ArgSortOp], _sort_unsupported_reason),
    ("lift_topk", 92, [ops.TopKOp], real_arrays),
    ("lift_searchsorted", 93, [ops.SearchsortedOp], _search_unsupported_reason),
    ("lift_fourier", 95, [ops.RFFTOp, ops.IRFFTOp], floats_only),
):
    register_counterparts(_name, _position, _classes, _reason)

_CONVOLUTIONS = (
    *(ops.AbstractConv2d, ops.AbstractConv2d_gradWeights, ops.AbstractConv2d_gradInputs),
    *(ops.AbstractConv3d, ops.AbstractConv3d_gradWeights, ops.AbstractConv3d_gradInputs),
)

#: Work items of a group on a graphics card.
_GROUP = 256


def _convolution_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtypes = [x.type.dtype for x in inputs[:2]]
    profile = get_context(context_name).profile
    if not profile.runs_items_serially and profile.max_local_size < _GROUP:
        return f"{profile.name} has groups of fewer than {_GROUP} work items"
    if any(dtype.startswith("complex") for dtype in dtypes):
        return "no complex convolutions on the device"
    return floats_only(op, context_name, inputs, outputs) or unsupported_reason(context_name, [upcast(*dtypes)])


@lifts(_CONVOLUTIONS, 57, _convolution_unsupported_reason)
def lift_convolution(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a convolution or a gradient of one; the shape that gradients take stays on the host."""
    arrays = cast_to_common([on_device(x, context_name) for x in inputs[:2]], "upcast")
    lifted = counterpart_of(type(op)).like(op)(*arrays, *inputs[2:])
    return cast(lifted, outputs[0].type.dtype)


def _arrays_alone(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if all(is_host_array(x) or isinstance(x.type, OpenCLArrayType) for x in (*inputs, *outputs)):
        return None
    return "only arrays are seen by the host where they are"


@lifts(list(LINEAR_ALGEBRA), 98, _arrays_alone)
def lift_linear_algebra(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Let the host compute, for a graph that stays on the device; numbers and whole numbers stay on the host."""
    taken = [as_opencl_variable(x, context_name) if _moves(x) else x for x in inputs]
    lifted = OpenCLOnHost(op, [out.type for out in outputs])
    return lifted(*taken, return_list=True)


def _moves(x: Variable) -> bool:
    return isinstance(x.type, OpenCLArrayType) or (x.type.ndim > 0 and x.type.dtype.startswith(("float", "complex")))
