"""The fusion rewriter, which Theano runs just after lifting a graph to the device, and the ops that it builds.

Sums and products with more terms than a kernel can take as arguments are split first, since otherwise the ops that
compute the terms could not be fused with the sum or product. Each part of a sum or product combines its terms with the
result of the previous parts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from optdb.codegen.scalars.program import Number, ProgramBuilder, Scalar, ScalarProgram, Slot
from optdb.host.api import scalars
from optdb.host.api.config import config
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, is_output, op_of, owner_of
from optdb.host.api.ops import Shape, Shape_i
from optdb.host.api.rewriters import GraphRewriter, replace_all
from optdb.host.api.traces import copy_trace
from optdb.opencl.fusing.groups import (
    MOST_STEPS,
    Frame,
    FusionGroup,
    FusionGroups,
    can_fuse,
    identity,
    node_program,
    seen,
    seen_through,
    takes_inputs,
    through,
)
from optdb.opencl.fusing.recomputing import recompute
from optdb.opencl.fusing.reductions import families_of, fused, with_epilogue, with_prologue
from optdb.opencl.fusing.staging import constant_value, fused_group, groups_of
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalar_programs import FusedScalars

#: The source of a value: an array with its frame, or a constant.
Source = tuple[Variable, Frame] | Number

#: Scalar ops that can be split into a chain of ops with fewer inputs.
_FOLDS = (scalars.Add, scalars.Mul)


class OpenCLFusion(GraphRewriter):
    """Fuses elementwise ops and reductions on the device into kernels."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        if config.optdb.fuser == "lazy":
            self.replace(fgraph, list(_shapes_of_operands(fgraph)))
            for nodes in groups_of(fgraph):
                self.replace(fgraph, fused_group(fgraph, nodes))
            return
        for parts in _parts_of_large_nodes(fgraph):
            self.replace(fgraph, parts)
        self.replace(fgraph, list(_shapes_of_operands(fgraph)))
        groups = FusionGroups(fgraph, separate=_split_wide_nodes(fgraph))
        for group in groups:
            self.replace(fgraph, _GroupBuilder(fgraph, group, groups.in_order(group)).replacements())
        for node in fgraph.toposort():
            reduction = with_prologue(fgraph, node)
            if reduction is not None:
                self.replace(fgraph, [(node.outputs[0], reduction)])
        for node in fgraph.toposort():
            self.replace(fgraph, with_epilogue(fgraph, node))
        for family in families_of(fgraph):
            self.replace(fgraph, fused(family))
        recompute(fgraph, self.replace)
        _share_kernels(fgraph)


def _parts_of_large_nodes(fgraph: FunctionGraph) -> Iterator[list[tuple[Variable, Variable]]]:
    """For each op with too many steps, yield replacements of its outputs; a separate node computes each step.

    Fusion on the host can create ops of any size, but the compile time of a kernel grows faster than its size.
    """
    for node in fgraph.toposort():
        program = node_program(node) if can_fuse(node) else None
        if program is None or len(program.steps) <= MOST_STEPS or any(map(_is_constant, program.steps)):
            continue
        operands: list[Variable | Number] = list(node.inputs)
        results = program.evaluate(operands, _applied, lambda number: number)
        both = zip(node.outputs, results, strict=True)
        pairs = [(old, new) for old, new in both if isinstance(new, Variable) and new.type == old.type]
        if len(pairs) == len(node.outputs):
            yield pairs


def _is_constant(step: tuple[Scalar, tuple[Slot, ...]]) -> bool:
    return all(isinstance(slot, Number) for slot in step[1])


def _applied(scalar: Scalar, operands: Sequence[Variable | Number]) -> Variable:
    inputs = list(dict.fromkeys(x for x in operands if not isinstance(x, Number)))
    slots = tuple([x if isinstance(x, Number) else inputs.index(x) for x in operands])
    program = FusedScalars(tuple([x.type.dtype for x in inputs]), ((scalar, slots),), (len(inputs),))
    return OpenCLElemwise(program).make_node(*inputs).outputs[0]


def _shapes_of_operands(fgraph: FunctionGraph) -> Iterator[tuple[Variable, Variable]]:
    """Yield each shape of an elementwise result, and its replacement: the shape of an operand that is not broadcast.

    An op that reads only an array's shape counts as a user of the array: without the replacement, a result that is
    otherwise only summed would be stored.
    """
    for node in fgraph.toposort():
        if isinstance(node.op, Shape | Shape_i):
            (var,) = node.inputs
            operand = _of_same_shape(var)
            if operand is not var:
                yield node.outputs[0], node.op(operand)


def _of_same_shape(var: Variable) -> Variable:
    """Return the earliest variable with the shape of `var` in the chain of elementwise ops that computes `var`."""
    while var.owner is not None and can_fuse(var.owner):
        pattern = var.type.broadcastable
        operands = [x for x in var.owner.inputs if x.type.broadcastable == pattern]
        if not operands:
            return var
        var = operands[0]
    return var


def _share_kernels(fgraph: FunctionGraph) -> None:
    """Let programs that differ only in constants share a kernel that takes the constants as arguments.

    Sharing a kernel saves compile time, although launches become slower.
    """
    by_kernel: dict[Hashable, list[ScalarProgram]] = {}
    for node in fgraph.apply_nodes:
        program = op_of(node, OpenCLElemwise).scalar_op if can_fuse(node) else None
        if isinstance(program, ScalarProgram):
            by_kernel.setdefault(_kernel_key(node, program), []).append(program)
    for programs in by_kernel.values():
        if len(set(programs)) > 1:
            for program in programs:
                program.takes_arguments = True


def _kernel_key(node: Apply, program: ScalarProgram) -> Hashable:
    """Return everything, except constants, that determines an elementwise op's kernel."""
    shared, _ = program.with_arguments()
    single = tuple([all(var.type.broadcastable) for var in node.inputs])
    kind = node.outputs[0].type
    return shared, single, kind.ndim, kind.context_name


def _split_wide_nodes(fgraph: FunctionGraph) -> set[Apply]:
    """Split sums and products with too many terms into chains of nodes; return all nodes but each chain's last."""
    separate: set[Apply] = set()
    for node in fgraph.toposort():
        if not _may_be_split(node):
            continue
        parts = _parts(fgraph, node)
        if len(parts) > 1:
            separate.update(_split(fgraph, node, parts))
    return separate


def _may_be_split(node: Apply) -> bool:
    if not can_fuse(node) or type(op_of(node, OpenCLElemwise).scalar_op) not in _FOLDS:
        return False
    dtype = node.outputs[0].type.dtype
    return len(node.inputs) > 2 and all(var.type.dtype == dtype for var in node.inputs)


def _parts(fgraph: FunctionGraph, node: Apply) -> list[list[Variable]]:
    """Divide a node's inputs, without reordering them, into one part for each kernel."""
    parts: list[list[Variable]] = [[]]
    steps, sources = 0, set[Variable]()
    for var in node.inputs:
        more_steps, more_sources = _operands(fgraph, var, node)
        steps, sources = steps + more_steps, sources | more_sources
        # A kernel also takes two more arrays: the sum of the previous parts, and an output.
        fits = steps < MOST_STEPS and takes_inputs(node.outputs[0], sources, 2)
        if len(parts[-1]) > 1 and not fits:
            parts.append([])
            steps, sources = more_steps, more_sources
        parts[-1].append(var)
    return parts


def _operands(fgraph: FunctionGraph, var: Variable, user: Apply) -> tuple[int, set[Variable]]:
    """Return the number of steps that compute `var`, up to a kernel's limit, and the variables that they read."""
    steps, sources = 0, set[Variable]()
    todo = [(var, user)]
    while todo:
        var, user = todo.pop()
        if steps < MOST_STEPS and _is_for(fgraph, var, user):
            maker = owner_of(var)
            steps += len(node_program(maker).steps)
            todo += [(below, maker) for below in maker.inputs]
        else:
            sources.add(var)
    return steps, sources


def _is_for(fgraph: FunctionGraph, var: Variable, user: Apply) -> bool:
    """Tell whether `var` is an elementwise op's result that only `user` uses, and `user` can be fused with the op."""
    if var.owner is None or not can_fuse(var.owner) or len(var.owner.outputs) > 1:
        return False
    same_pattern = var.type.broadcastable == user.outputs[0].type.broadcastable
    return same_pattern and all(not is_output(client) and client is user for client, _ in clients(fgraph, var))


def _split(fgraph: FunctionGraph, node: Apply, parts: list[list[Variable]]) -> list[Apply]:
    op = OpenCLElemwise(op_of(node, OpenCLElemwise).scalar_op)
    made: list[Apply] = []
    for part in parts:
        before = [made[-1].outputs[0]] if made else []
        made.append(op.make_node(*before, *part))
    (old,), (new,) = node.outputs, made[-1].outputs
    if new.type != old.type:
        return []
    for part_node in made[:-1]:
        copy_trace(old, part_node.outputs[0])
    replace_all(fgraph, [(old, new)], reason="split_wide_nodes")
    return made[:-1]


class _GroupBuilder:
    """Builds the op for a group whose nodes are in `order`, operands first."""

    def __init__(self, fgraph: FunctionGraph, group: FusionGroup, order: Sequence[Apply]) -> None:
        self._fgraph = fgraph
        self._group = group
        self._order = order
        sources = [self._source(var, group.members[node]) for node in order for var in node.inputs]
        self._has_numbers = any(isinstance(source, Number) for source in sources)
        outside = [source for source in sources if not isinstance(source, Number) and not self._is_inside(*source)]
        self.inputs: list[tuple[Variable, Frame]] = list(dict.fromkeys(outside))
        self.wanted = [out for node in order for out in node.outputs if self._is_wanted(out)]

    def replacements(self) -> list[tuple[Variable, Variable]]:
        """Return the outputs used outside the group, each with its replacement; empty if fusion changes nothing."""
        if not self.inputs or (len(self._order) == 1 and not self._has_numbers):
            return []
        inputs = [seen(*source) for source in self.inputs]
        new = OpenCLElemwise(FusedScalars.like(self.program())).make_node(*inputs).outputs
        if any(a.type != b.type for a, b in zip(self.wanted, new, strict=True)):
            return []  # without the constant, lengths that its type declares would be unknown
        return list(zip(self.wanted, new, strict=True))

    def program(self) -> ScalarProgram:
        builder = ProgramBuilder([var.type.dtype for var, _ in self.inputs])
        operand_slots: dict[tuple[Variable, Frame], Slot] = {source: slot for slot, source in enumerate(self.inputs)}
        for node in self._order:
            frame = self._group.members[node]
            sources = [self._source(var, frame) for var in node.inputs]
            operands = [source if isinstance(source, Number) else operand_slots[source] for source in sources]
            slots = builder.inline(node_program(node), operands)
            operand_slots.update(zip([(out, frame) for out in node.outputs], slots, strict=True))
        return builder.build([operand_slots[out, self._group.members[owner_of(out)]] for out in self.wanted])

    def _source(self, var: Variable, frame: Frame) -> Source:
        """Return the source of a node's input, looking through DimShuffles."""
        base, seen_by = seen_through(var, frame)
        if self._is_inside(base, seen_by):
            return base, seen_by
        number = _constant_of(base)
        if number is not None:
            return number
        return (var, frame) if frame == identity(var.type.ndim) else (base, seen_by)

    def _is_inside(self, var: Variable, frame: Frame) -> bool:
        return var.owner is not None and self._group.members.get(var.owner) == frame

    def _is_wanted(self, out: Variable) -> bool:
        return any(is_output(client) or not self._takes(client) for client, _ in clients(self._fgraph, out))

    def _takes(self, client: Apply) -> bool:
        """Tell whether a node is in the group or is a DimShuffle between members of the group."""
        if client in self._group.members:
            return True
        if type(client.op) is not OpenCLDimShuffle:
            return False
        users = clients(self._fgraph, client.outputs[0])
        maker = client.inputs[0].owner
        input_frame = None if maker is None else self._group.members.get(maker)
        return all(
            not is_output(user)
            and user in self._group.members
            and through(self._group.members[user], client.op.new_order) == input_frame
            for user, _ in users
        )


def _constant_of(var: Variable) -> Number | None:
    """Return a constant's only element; None if the variable is not a constant or has several elements."""
    value = constant_value(var)
    if value is None or value.size != 1 or not all(var.type.broadcastable):
        return None
    return Number.of(value.flat[0], var.type.dtype)


# Fusion runs after lifting and the device-only rewriters, and before the host's fusion.
compile_db().register("opencl_fusion", OpenCLFusion(), 48.7, "opencl", "fusion")
