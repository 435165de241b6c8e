"""Sibling fusion: reductions of the same arrays over the same axes are merged, so that the arrays are read once.

For example, the gradient of a batch normalization sums the incoming gradient, its product with the input, and one or
two other values. Without fusion, this takes up to four passes over arrays that are larger than a device's cache. XLA
calls this multi-output fusion.

It is not done on CPUs: their reductions fold vectors, while a kernel with several results would fold single elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from optdb.codegen.scalars.program import ProgramBuilder, ScalarProgram, Slot
from optdb.host.api.graph import Apply, FunctionGraph, Variable, op_of
from optdb.opencl.branches import Needs, needs_of
from optdb.opencl.fusing.groups import MOST_STEPS, common_pattern
from optdb.opencl.fusing.reductions import has_room, prologue_of
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import program_of

__all__ = ["Family", "families_of", "fused"]

#: Maximum number of results per kernel; each result takes registers for all elements that are accumulated in parallel.
_MOST_RESULTS = 6


@dataclass(eq=False)
class Family:
    """Reductions that may be merged."""

    members: list[Apply]
    #: The arrays that are not broadcast; all results of one elementwise node are represented by the node.
    sources: set[Variable | Apply]
    #: Bit masks: the reductions that the family depends on, and the family's own reductions.
    depends: int
    bits: int


def families_of(fgraph: FunctionGraph) -> list[Family]:
    """Return the families with more than one reduction."""
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
    """Return a key that is equal for reductions that may form a family."""
    op = _reduction(node)
    axes = None if op.axis is None else tuple(sorted(op.axis))
    context = node.inputs[0].type.context_name
    return op.scalar_op, axes, op.dtype, op.acc_dtype, common_pattern(op.parted(node.inputs)[0]), context, needs


def _sources(node: Apply) -> set[Variable | Apply]:
    """Return the arrays that are not broadcast; all results of one elementwise node are represented by the node."""
    folded, _ = _reduction(node).parted(node.inputs)
    whole = common_pattern(folded)
    arrays = [var for var in folded if var.type.broadcastable == whole and not all(whole)]
    return {var.owner if var.owner is not None and type(var.owner.op) is OpenCLElemwise else var for var in arrays}


def _joined(alike: Sequence[Family], families: Sequence[Family]) -> list[Family]:
    """Join independent families of one kind that share an array; return the families with several reductions."""
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
    if one.sources.isdisjoint(other.sources) or not _fit([*one.members, *other.members]):
        return False
    return not (_all_before(one, families) & other.bits or _all_before(other, families) & one.bits)


def _join(family: Family, other: Family, families: Sequence[Family]) -> None:
    family.members += other.members
    family.sources |= other.sources
    family.depends |= other.depends
    family.bits |= other.bits
    # Whatever depends on one member now depends on everything that the family depends on, so update all families that
    # share members.
    for one in families:
        if one.bits & family.bits:
            one.depends, one.bits = family.depends, family.bits


def _all_before(family: Family, families: Sequence[Family]) -> int:
    """Return all reductions that a family depends on, directly or through other joined families."""
    before, seen = family.depends, 0
    while rest := before & ~seen:
        number = (rest & -rest).bit_length() - 1
        seen |= 1 << number
        before |= families[number].depends | families[number].bits
    return before


def _fit(members: Sequence[Apply]) -> bool:
    """Tell whether the results, arguments and steps of reductions fit in one kernel."""
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
    """Return the program of a reduction's epilogue."""
    op = _reduction(node)
    if op.post_scalar_op is None:
        return None
    _, others = op.parted(node.inputs)
    return program_of(op.post_scalar_op, [op.dtype, *[var.type.dtype for var in others]])


def fused(family: Family) -> list[tuple[Variable, Variable]]:
    """Return a family's outputs, each with its replacement; return an empty list if types would change.

    The inputs are read from the reductions' nodes here, since fusing another family may have replaced them.
    """
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
