"""Elementwise ops, reductions, and transpositions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import ScalarInnerGraphOp, ScalarOp, TrueDiv, get_scalar_type
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from optdb.codegen.reductions.folds import FOLDS
from optdb.codegen.scalars.code import computed_dtypes
from optdb.codegen.scalars.program import Number, ProgramBuilder, Scalar, ScalarProgram, Slot, program_of_graph
from optdb.codegen.scalars.types import NoCode, is_complex, part_dtype
from optdb.device.expressions import applied, cast, folded, mapped, transposed
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Tensor
from optdb.pytensor.dispatch import OnHost, described, tensors_of
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.sizes import is_same

#: Maps the names of PyTensor's scalar op classes to the names of the scalar operations, if the names differ.
_NAMES = {
    "Sign": "Sgn",
    "Reciprocal": "Inv",
    "Sigmoid": "ScalarSigmoid",
    "Softplus": "ScalarSoftplus",
    "ScalarMaximum": "Maximum",
    "ScalarMinimum": "Minimum",
}
#: Only classes in these modules are identified by name, because a user's op may have the same name as one of them.
_MODULES = ("pytensor.scalar.", "pytensor.tensor.math", "pytensor.tensor.xlogx", "pymc.distributions.dist_math")


def program_of(op: Any, dtypes: Sequence[str]) -> ScalarProgram:
    """Return the program of a scalar op for inputs of the given dtypes; raise NoCode if there is none."""
    return _program_of(op, tuple(dtypes))


@functools.lru_cache(maxsize=10_000)
def _program_of(op: Any, dtypes: tuple[str, ...]) -> ScalarProgram:
    if isinstance(op, ScalarInnerGraphOp):
        if not hasattr(op, "inputs") or type(op).__name__ != "Composite":
            raise NoCode(f"no OpenCL C for {type(op).__name__}")
        graph = op.fgraph
        nodes = io_toposort(graph.inputs, graph.outputs)
        program = program_of_graph(dtypes, graph.inputs, graph.outputs, nodes, program_of)
    else:
        program = _of_op(op, dtypes)
    computed_dtypes(program)  # raises NoCode if an operation has no code
    return program


def _of_op(op: Any, dtypes: tuple[str, ...]) -> ScalarProgram:
    name = type(op).__name__
    if not type(op).__module__.startswith(_MODULES):
        raise NoCode(f"no OpenCL C for {type(op).__module__}.{name}")
    node = op.make_node(*[get_scalar_type(dtype).make_variable() for dtype in dtypes])
    dtype = node.outputs[0].type.dtype
    if name == "Log1mexp":
        return _log1mexp(dtypes, dtype)
    properties = tuple(sorted((key, getattr(op, key)) for key in ("openlow", "openhi") if hasattr(op, key)))
    return ScalarProgram.of(Scalar(_NAMES.get(name, name), dtype, properties), dtypes)


def _log1mexp(dtypes: tuple[str, ...], dtype: str) -> ScalarProgram:
    """Return log(1 - exp(x)), computed by whichever of two formulas is accurate for x."""
    builder = ProgramBuilder(dtypes)
    x: Slot = 0
    if dtypes[0] != dtype:
        x = builder.apply(Scalar("Cast", dtype), [x])
    near = builder.apply(Scalar("GT", "bool"), [x, Number.of(-math.log(2), dtype)])
    expm1 = builder.apply(Scalar("Neg", dtype), [builder.apply(Scalar("Expm1", dtype), [x])])
    exp = builder.apply(Scalar("Neg", dtype), [builder.apply(Scalar("Exp", dtype), [x])])
    by_expm1, by_exp = builder.apply(Scalar("Log", dtype), [expm1]), builder.apply(Scalar("Log1p", dtype), [exp])
    return builder.build([builder.apply(Scalar("Switch", dtype), [near, by_expm1, by_exp])])


@described.register(ScalarOp)
def _scalar(op: ScalarOp, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    return _mapped(op, node, tensors_of(inputs), trace)


@described.register(Elemwise)
def _elemwise(op: Elemwise, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    arrays = tensors_of(inputs)
    _check_lengths(node, arrays)
    if not arrays:
        raise OnHost(f"{op} takes no inputs")
    return _mapped(op.scalar_op, node, arrays, trace)


def _mapped(op: ScalarOp, node: Apply, inputs: Sequence[Tensor], trace: GraphTrace) -> list[Value]:
    """Apply a scalar op to tensors; raise OnHost if it needs a dtype that the device lacks."""
    if isinstance(op, TrueDiv) and all(x.dtype[0] in "iub" for x in inputs):
        # The result's dtype depends on floatX, which may have changed since the node was made.
        inputs = [cast(x, node.outputs[0].type.dtype) for x in inputs]
    program = program_of(op, [x.dtype for x in inputs])
    for dtype in computed_dtypes(program) - {var.type.dtype for var in (*node.inputs, *node.outputs)}:
        reason = trace.tracer.context.unsupported_reason(dtype)
        if reason is not None:
            raise OnHost(f"{op} computes in {dtype}, and {reason}")
    return [*mapped(program, inputs)]


def _check_lengths(node: Apply, inputs: Sequence[Tensor]) -> None:
    """Raise ValueError if lengths differ, or if an input would broadcast along an axis although its type forbids it."""
    for axis in range(node.outputs[0].type.ndim):
        lengths = [x.shape[axis] for x in inputs]
        if all(is_same(length, lengths[0]) for length in lengths):
            continue
        known = [var.type.broadcastable[axis] for var in node.inputs]
        others = [length for length, is_one in zip(lengths, known) if not is_one]
        if all(length == others[0] for length in others[1:]):
            continue
        shapes = ", ".join(str(x.shape) for x in inputs)
        if 1 in others and len(set(others)) == 2:
            raise ValueError(
                f"Runtime broadcasting not allowed. Axis {axis} has different lengths in the inputs of {node.op}, of "
                f"shapes {shapes}, and one of them is 1, which its type does not say. If broadcasting was intended, "
                "use `specify_broadcastable` on the input."
            )
        raise ValueError(f"Incompatible Elemwise input shapes at axis {axis} of {node.op}: {shapes}")


@described.register(CAReduce)
def _reduce(op: CAReduce, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,), (out,) = tensors_of(inputs), node.outputs
    axes = range(x.ndim) if op.axis is None else [axis % x.ndim for axis in op.axis]
    name = type(op.scalar_op).__name__
    name = _NAMES.get(name, name)
    if name not in FOLDS:
        raise OnHost(f"reductions by {name} are not supported on the device")
    acc_dtype = getattr(op, "acc_dtype", None) or out.type.dtype
    if trace.tracer.context.unsupported_reason(acc_dtype) is not None:
        acc_dtype = out.type.dtype  # sums of float32 use float64 if the device has it
    if is_complex(acc_dtype) and name != "Add":
        raise OnHost(f"reductions of complex numbers by {name} are not supported on the device")
    try:
        program_of(op.scalar_op, [acc_dtype] * 2)
    except TypeError as error:  # the host raises it
        raise OnHost(f"{op.scalar_op} takes no {acc_dtype}: {error}") from error
    # The result of a reduction over no elements; if it is None, the scalar op determines the result.
    initial = op.initial_value(out.type.dtype) if hasattr(op, "initial_value") else None
    if is_complex(acc_dtype) and not is_complex(out.type.dtype):
        # NumPy discards the imaginary parts of such sums.
        total = folded(name, x, list(axes), acc_dtype, acc_dtype, initial)
        return [cast(applied("Real", part_dtype(acc_dtype), total), out.type.dtype)]
    return [folded(name, x, list(axes), out.type.dtype, acc_dtype, initial)]


@described.register(DimShuffle)
def _dimshuffle(op: DimShuffle, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    order: list[Any] = [None if axis == "x" else axis for axis in op.new_order]
    (x,) = tensors_of(inputs)
    return [transposed(x, order)]
