"""Fusion of reductions: with elementwise ops before and after them, and with each other.

An elementwise operand that only one reduction uses is computed in the reduction's kernel and never stored (prologue).
An elementwise op on a reduction's result, such as the division in a mean, is computed when the result is stored
(epilogue). On GPUs, reductions of the same arrays over the same axes are merged, so that the arrays are read once, as
in the gradient of a batch normalization; XLA calls this multi-output fusion.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from optdb.codegen.scalars.costs import QUICK, is_cheap
from optdb.codegen.scalars.program import ProgramBuilder, ScalarProgram, Slot
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, op_of, owner_of
from optdb.opencl.fusing.groups import (
    MOST_STEPS,
    Frame,
    Needs,
    can_fuse,
    common_pattern,
    identity,
    needs_of,
    node_program,
    pattern,
    seen,
    seen_through,
)
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import program_of


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
    """Return (output, replacement) pairs that make a node the epilogue of a reduction; empty if no reduction fits."""
    if not can_fuse(node) or _is_an_update(fgraph, node):
        return []
    if not all(node.outputs[0].type.broadcastable) and not is_cheap(node_program(node), QUICK):
        return []
    for var in node.inputs:
        base, frame = seen_through(var, identity(var.type.ndim))
        if _may_be_epilogue(fgraph, node, var, base, frame):
            return _fused_epilogue(node, base, frame)
    return []


def _is_an_update(fgraph: FunctionGraph, node: Apply) -> bool:
    """Tell whether a node computes the next value of an input, and thus might overwrite the input."""
    following = getattr(fgraph, "update_mapping", None) or {}
    return any(fgraph.outputs[index] in node.outputs for index in following)


def _may_be_epilogue(fgraph: FunctionGraph, node: Apply, var: Variable, base: Variable, frame: Frame) -> bool:
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


def _fused_epilogue(node: Apply, base: Variable, frame: Frame) -> list[tuple[Variable, Variable]]:
    others, post = _epilogue_program(node, base, frame)
    reduction = owner_of(base)
    op = op_of(reduction, OpenCLCAReduce)
    made = op.with_programs(op.pre_scalar_op, post).make_node(*reduction.inputs, *others).outputs
    pairs = [(old, seen(new, frame)) for old, new in zip(node.outputs, made, strict=True)]
    return pairs if all(old.type == new.type for old, new in pairs) else []


def _epilogue_program(node: Apply, base: Variable, frame: Frame) -> tuple[list[Variable], ScalarProgram]:
    """Return an epilogue's inputs except `base`, with the axes of the reduction's result; also return its program."""
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


#: Maximum number of results per kernel; each result takes registers for all elements that are accumulated in parallel.
_MOST_RESULTS = 6


@dataclass(eq=False)
class Family:
    """Reductions that may be merged."""

    members: list[Apply]
    #: The reduced arrays that are not broadcast; an array that an elementwise node computes is represented by the node.
    sources: set[Variable | Apply]
    #: Bit masks: the reductions that the family depends on, and the family's own reductions.
    depends: int
    bits: int


def families_of(fgraph: FunctionGraph) -> list[Family]:
    """Join reductions that may be merged into families; return the families with more than one reduction."""
    needs = needs_of(fgraph)
    depends: dict[Apply, int] = {}
    families: list[Family] = []
    by_kind: dict[Hashable, list[Family]] = {}
    for node in fgraph.toposort():
        before = 0
        for var in node.inputs:
            if var.owner is not None:
                before |= depends.get(var.owner, 0)
        depends[node] = before
        if not _may_join(node):
            continue
        bit = 1 << len(families)
        depends[node] |= bit
        family = Family([node], _sources(node), before, bit)
        families.append(family)
        by_kind.setdefault(_kind(node, needs.get(node)), []).append(family)
    return [family for alike in by_kind.values() for family in _joined(alike, families)]


def _reduction(node: Apply) -> OpenCLCAReduce:
    return op_of(node, OpenCLCAReduce)


def _may_join(node: Apply) -> bool:
    if type(node.op) is not OpenCLCAReduce or node.op.results > 1:
        return False
    return not node.inputs[0].type.context.profile.needs_explicit_vectors


def _kind(node: Apply, needs: Needs | None) -> Hashable:
    op = _reduction(node)
    axes = None if op.axis is None else tuple(sorted(op.axis))
    context = node.inputs[0].type.context_name
    return op.scalar_op, axes, op.dtype, op.acc_dtype, common_pattern(op.parted(node.inputs)[0]), context, needs


def _sources(node: Apply) -> set[Variable | Apply]:
    folded, _ = _reduction(node).parted(node.inputs)
    whole = common_pattern(folded)
    arrays = [var for var in folded if var.type.broadcastable == whole and not all(whole)]
    return {var.owner if var.owner is not None and type(var.owner.op) is OpenCLElemwise else var for var in arrays}


def _joined(alike: Sequence[Family], families: Sequence[Family]) -> list[Family]:
    """Join independent families of reductions that share an array; return the families with several reductions."""
    found: list[Family] = []
    for family in alike:
        fitting = (other for other in found if _may_be_joined(other, family, families))
        other = next(fitting, None)
        if other is None:
            found.append(family)
        else:
            _join(other, family, families)
    return [family for family in found if len(family.members) > 1]


def _may_be_joined(one: Family, other: Family, families: Sequence[Family]) -> bool:
    if one.sources.isdisjoint(other.sources) or not _fit_in_one([*one.members, *other.members]):
        return False
    return not (_all_before(one, families) & other.bits or _all_before(other, families) & one.bits)


def _join(family: Family, other: Family, families: Sequence[Family]) -> None:
    family.members += other.members
    family.sources |= other.sources
    family.depends |= other.depends
    family.bits |= other.bits
    # A node that depends on one member of the family now depends on everything that the family depends on.
    for one in families:
        if one.bits & family.bits:
            one.depends, one.bits = family.depends, family.bits


def _all_before(family: Family, families: Sequence[Family]) -> int:
    """Return the bit mask of all reductions that a family depends on, directly or through other joined families."""
    before, seen = family.depends, 0
    while rest := before & ~seen:
        number = (rest & -rest).bit_length() - 1
        seen |= 1 << number
        before |= families[number].depends | families[number].bits
    return before


def _fit_in_one(members: Sequence[Apply]) -> bool:
    if len(members) > _MOST_RESULTS:
        return False
    arrays, others = _inputs(members)
    steps = sum(len(program.steps) for member in members for program in (prologue_of(member), _post(member)) if program)
    outputs = sum(len(member.outputs) for member in members)
    return steps <= MOST_STEPS and has_room(arrays[0], len(arrays) + len(others) + outputs)


def _inputs(members: Sequence[Apply]) -> tuple[list[Variable], list[Variable]]:
    """Return the arrays that reductions fold and the inputs of their epilogues, without duplicates."""
    parted = [_reduction(member).parted(member.inputs) for member in members]
    arrays, others = (dict.fromkeys(var for part in parts for var in part) for parts in zip(*parted, strict=True))
    return list(arrays), list(others)


def _post(node: Apply) -> ScalarProgram | None:
    op = _reduction(node)
    if op.post_scalar_op is None:
        return None
    _, others = op.parted(node.inputs)
    return program_of(op.post_scalar_op, [op.dtype, *[var.type.dtype for var in others]])


def fused(family: Family) -> list[tuple[Variable, Variable]]:
    """Return the outputs of a family of reductions, each with its replacement; empty if types would change."""
    members = family.members
    arrays, others = _inputs(members)
    op = _reduction(members[0])
    pre, post = _common_prologue(members, arrays), _common_epilogue(members, others)
    made = op.with_programs(pre, post).make_node(*arrays, *others)
    pairs = list(zip([out for member in members for out in member.outputs], made.outputs, strict=True))
    return pairs if all(old.type == new.type for old, new in pairs) else []


def _common_prologue(members: Sequence[Apply], arrays: Sequence[Variable]) -> ScalarProgram:
    builder = ProgramBuilder([var.type.dtype for var in arrays])
    elements: list[Slot] = []
    for member in members:
        folded, _ = _reduction(member).parted(member.inputs)
        elements += builder.inline(prologue_of(member), [arrays.index(var) for var in folded])
    return builder.build(elements)


def _common_epilogue(members: Sequence[Apply], others: Sequence[Variable]) -> ScalarProgram | None:
    programs = list(map(_post, members))
    if not any(programs):
        return None
    builder = ProgramBuilder([*[_reduction(members[0]).dtype] * len(members), *[var.type.dtype for var in others]])
    outputs: list[Slot] = []
    for number, (member, program) in enumerate(zip(members, programs, strict=True)):
        _, own = _reduction(member).parted(member.inputs)
        slots = [number, *[len(members) + others.index(var) for var in own]]
        outputs += slots[:1] if program is None else builder.inline(program, slots)
    return builder.build(outputs)
