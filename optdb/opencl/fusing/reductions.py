"""Prologue and epilogue fusion: elementwise ops before and after a reduction join its kernel.

Operands that only a reduction uses are never stored (prologue). Elementwise ops on the result are computed when it is
stored (epilogue): for example ``-log(sum(...))``, a mean, or the update of a parameter whose gradient is a sum. An
epilogue has the same shape as the result; DimShuffles that only permute axes or add axes of length 1 may be in between.
An elementwise op can be the epilogue of only one reduction, whose result no other node may use. Results of other
reductions are ordinary inputs.
"""

from __future__ import annotations

from optdb.codegen.scalars.program import ProgramBuilder, ScalarProgram
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, op_of, owner_of
from optdb.opencl.fusing.groups import Frame, can_fuse, identity, is_cheap, node_program, pattern, seen, seen_through
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import program_of

#: Scalar ops that are cheap enough to be computed for each result without vectorization.
_QUICK = frozenset({"TrueDiv", "Inv", "Sqrt"})


def with_prologue(fgraph: FunctionGraph, node: Apply) -> Variable | None:
    """Return a reduction with its operand's op as prologue; None if fusion is impossible or the operand is shared."""
    op = node.op
    if type(op) is not OpenCLCAReduce or op.pre_scalar_op is not None or op.post_scalar_op is not None:
        return None  # already fused in the graph of a function that was compiled for a device
    (x,) = node.inputs
    maker = x.owner
    if maker is None or not can_fuse(maker) or len(maker.outputs) > 1 or len(clients(fgraph, x)) > 1:
        return None
    if not has_room(x, len(maker.inputs) + 1):
        return None
    return op.with_programs(op_of(maker, OpenCLElemwise).scalar_op, None)(*maker.inputs)


def with_epilogue(fgraph: FunctionGraph, node: Apply) -> list[tuple[Variable, Variable]]:
    """Return an elementwise node's outputs, each with a replacement: a reduction with the node as epilogue.

    Return an empty list if fusion is impossible or saves no time.
    """
    if not can_fuse(node) or _is_an_update(fgraph, node):
        return []
    if not all(node.outputs[0].type.broadcastable) and not is_cheap(node, _QUICK):
        return []
    for var in node.inputs:
        base, frame = seen_through(var, identity(var.type.ndim))
        if _fits(fgraph, node, var, base, frame):
            return _pairs(node, base, frame)
    return []


def _is_an_update(fgraph: FunctionGraph, node: Apply) -> bool:
    """Tell whether a node computes the next value of an input, which it might overwrite."""
    following = getattr(fgraph, "update_mapping", None) or {}
    return any(fgraph.outputs[index] in node.outputs for index in following)


def _fits(fgraph: FunctionGraph, node: Apply, var: Variable, base: Variable, frame: Frame) -> bool:
    """Tell whether a reduction's result is used only by `node` and has the shape of the node's outputs."""
    if base.owner is None or type(base.owner.op) is not OpenCLCAReduce or base.owner.op.post_scalar_op is not None:
        return False
    if sorted(axis for axis in frame if axis != "x") != list(range(base.type.ndim)):
        return False
    if pattern(base, frame) != node.outputs[0].type.broadcastable:
        return False
    user = node
    while True:
        if any(client is not user for client, _ in clients(fgraph, var)):
            return False
        if var is base:
            inputs = base.owner.inputs
            return has_room(inputs[0], len(inputs) + len(node.inputs) + len(node.outputs))
        user = owner_of(var)
        (var,) = user.inputs


def _pairs(node: Apply, base: Variable, frame: Frame) -> list[tuple[Variable, Variable]]:
    others, post = _program(node, base, frame)
    reduction = owner_of(base)
    op = op_of(reduction, OpenCLCAReduce)
    made = op.with_programs(op.pre_scalar_op, post).make_node(*reduction.inputs, *others).outputs
    pairs = [(old, seen(new, frame)) for old, new in zip(node.outputs, made, strict=True)]
    return pairs if all(old.type == new.type for old, new in pairs) else []


def _program(node: Apply, base: Variable, frame: Frame) -> tuple[list[Variable], ScalarProgram]:
    """Return the program for using a node as an epilogue, and its other inputs, with the axes of the result."""
    back = tuple(frame.index(axis) for axis in range(base.type.ndim))
    inputs = [seen_through(var, back) for var in node.inputs]
    sources = list(dict.fromkeys([(base, identity(base.type.ndim)), *inputs]))
    builder = ProgramBuilder([var.type.dtype for var, _ in sources])
    slots = builder.inline(node_program(node), [sources.index(source) for source in inputs])
    return [seen(*source) for source in sources[1:]], builder.build(slots)


def prologue_of(node: Apply) -> ScalarProgram:
    """Return the program that computes the elements that a reduction folds."""
    op = op_of(node, OpenCLCAReduce)
    folded, _ = op.parted(node.inputs)
    dtypes = [var.type.dtype for var in folded]
    return ScalarProgram.copying(*dtypes) if op.pre_scalar_op is None else program_of(op.pre_scalar_op, dtypes)


def has_room(x: Variable, arrays: int) -> bool:
    """Tell whether a device accepts a kernel that reduces `x` and has the given number of array arguments."""
    axes = max(x.type.ndim, 2)
    return 8 * (6 + axes) + arrays * (16 + 8 * axes) <= x.type.context.profile.max_parameter_bytes
