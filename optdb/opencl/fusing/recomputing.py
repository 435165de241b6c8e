"""Recomputation: GPU kernels compute values that another kernel would otherwise store, if this reduces memory traffic.

If the kernels that read a kernel's outputs compute these outputs themselves from the kernel's inputs, the device may
read and write fewer arrays. XLA calls this producer-consumer fusion with duplication. Only ops that a GPU can compute
while it waits for memory are recomputed; CPUs compute values more slowly than they read them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from optdb.codegen.scalars.costs import QUICK, is_cheap
from optdb.codegen.scalars.program import Number, ProgramBuilder, ScalarProgram, Slot
from optdb.host.api.graph import Apply, FunctionGraph, Variable, clients, is_output, owner_of
from optdb.opencl.fusing.groups import (
    MOST_STEPS,
    Needs,
    can_fuse,
    common_pattern,
    needs_of,
    node_program,
    takes_arguments,
)
from optdb.opencl.fusing.reductions import has_room, prologue_of
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import FusedScalars

#: The arrays that a kernel reads, and the program that it applies to their elements.
_Kernel = tuple[list[Variable], ScalarProgram]
Replace = Callable[[FunctionGraph, list[tuple[Variable, Variable]]], None]


def recompute(fgraph: FunctionGraph, replace: Replace) -> None:
    """Let kernels recompute the outputs of elementwise nodes if this reduces the number of arrays read and written."""
    needs = needs_of(fgraph)
    queue = deque(node for node in fgraph.toposort() if _may_be_recomputed(node))
    while queue:
        node = queue.popleft()
        if node not in fgraph.apply_nodes:
            continue
        pairs = _replacements(fgraph, node, needs)
        if not pairs:
            continue
        replace(fgraph, pairs)
        # The loop terminates, because each replacement reduces the number of arrays read and written.
        made = dict.fromkeys(owner_of(new) for _, new in pairs)
        operands = dict.fromkeys(var.owner for maker in made for var in maker.inputs if var.owner is not None)
        queue.extend(maker for maker in (*operands, *made) if _may_be_recomputed(maker))


def _may_be_recomputed(node: Apply) -> bool:
    if not can_fuse(node) or not is_cheap(node_program(node), QUICK):
        return False
    kind = node.outputs[0].type
    return not all(kind.broadcastable) and not kind.context.profile.needs_explicit_vectors


@dataclass(frozen=True)
class _Reader:
    """A kernel that reads a node's outputs and could recompute them."""

    node: Apply
    #: The inputs that the kernel's program reads, excluding the epilogue's inputs.
    inputs: tuple[Variable, ...]
    program: ScalarProgram
    others: tuple[Variable, ...] = ()

    def remade(self, inputs: list[Variable], program: ScalarProgram) -> Apply:
        """Return a copy of the reader's node that reads `inputs` and applies `program` to them."""
        op = self.node.op
        if isinstance(op, OpenCLElemwise):
            return OpenCLElemwise(FusedScalars.like(program)).make_node(*inputs)
        assert isinstance(op, OpenCLCAReduce), op
        return op.with_programs(program, op.post_scalar_op).make_node(*inputs, *self.others)


def _reader(client: Apply, node: Apply, needs: Mapping[Apply, Needs]) -> _Reader | None:
    """Return a `_Reader` for a node's client; None if the client cannot recompute the node's outputs."""
    if needs.get(client) != needs.get(node):
        return None
    whole = node.outputs[0].type.broadcastable
    if can_fuse(client):
        if client.outputs[0].type.broadcastable != whole:
            return None
        return _Reader(client, tuple(client.inputs), node_program(client))
    if type(client.op) is not OpenCLCAReduce:
        return None
    folded, others = client.op.parted(client.inputs)
    if not set(others).isdisjoint(node.outputs):
        return None
    return _Reader(client, tuple(folded), prologue_of(client), tuple(others))


def _replacements(fgraph: FunctionGraph, node: Apply, needs: Mapping[Apply, Needs]) -> list[tuple[Variable, Variable]]:
    readers: dict[Apply, _Reader] = {}
    stored: set[int] = set()
    for number, out in enumerate(node.outputs):
        for client, _ in clients(fgraph, out):
            reader = None if is_output(client) else _reader(client, node, needs)
            if reader is None:
                stored.add(number)
            else:
                readers[reader.node] = reader
    if not readers or len(stored) == len(node.outputs):
        return []
    kept = _cheapest(node, list(readers.values()), stored)
    return [] if kept is None else _made(node, list(readers.values()), kept)


def _cheapest(node: Apply, readers: Collection[_Reader], needed: set[int]) -> tuple[int, ...] | None:
    """Return which outputs to store so that kernels access the fewest arrays; None if all outputs should be stored."""
    every = range(len(node.outputs))
    best, kept = _moved(node, readers, tuple(every)), None
    for more in [(), *((number,) for number in every if number not in needed)]:
        stored = tuple(sorted(needed.union(more)))
        moved = _moved(node, readers, stored)
        if moved < best:
            best, kept = moved, stored
    return kept


def _moved(node: Apply, readers: Iterable[_Reader], stored: tuple[int, ...]) -> float:
    """Return how many arrays a node and its readers access if only `stored` is stored; infinity if that cannot be."""
    whole = node.outputs[0].type.broadcastable
    moved = len(stored)
    kernels = [_kernel(node, stored)] if stored else []
    for reader in readers:
        kernel = _kernel_of_reader(node, reader, stored)
        if not _fits(reader, kernel):
            return math.inf
        kernels.append(kernel)
    return moved + sum(var.type.broadcastable == whole for inputs, _ in kernels for var in inputs)


def _fits(reader: _Reader, kernel: _Kernel) -> bool:
    inputs, program = kernel
    if len(program.steps) > MOST_STEPS or common_pattern(inputs) != common_pattern(reader.inputs):
        return False
    arrays = len(inputs) + len(reader.others) + len(reader.node.outputs)
    if isinstance(reader.node.op, OpenCLCAReduce):
        return has_room(inputs[0], arrays)
    return takes_arguments(reader.node.outputs[0], arrays)


def _kernel(node: Apply, outputs: Iterable[int]) -> _Kernel:
    builder = ProgramBuilder([var.type.dtype for var in node.inputs])
    results = builder.inline(node_program(node), range(len(node.inputs)))
    return _without_unused(node.inputs, builder.build([results[number] for number in outputs]))


def _kernel_of_reader(node: Apply, reader: _Reader, stored: Collection[int]) -> _Kernel:
    """Return a reader's kernel, which recomputes the outputs of `node` that are not stored."""
    arrays = [node.outputs[number] for number in stored]
    own = [var for var in reader.inputs if var not in node.outputs]
    sources = list(dict.fromkeys([*node.inputs, *arrays, *own]))
    builder = ProgramBuilder([var.type.dtype for var in sources])
    program = node_program(node)
    given = {program.results[number]: sources.index(node.outputs[number]) for number in stored}
    values: list[Slot] = [sources.index(var) for var in node.inputs]

    def value(slot: Slot) -> Slot:
        return slot if isinstance(slot, Number) else values[slot]

    for scalar, slots in program.steps:
        is_given = len(values) in given
        values.append(given[len(values)] if is_given else builder.apply(scalar, list(map(value, slots))))
    of_outputs = dict(zip(node.outputs, map(value, program.results), strict=True))
    operands = [of_outputs[var] if var in of_outputs else sources.index(var) for var in reader.inputs]
    return _without_unused(sources, builder.build(builder.inline(reader.program, operands)))


def _without_unused(inputs: Collection[Variable], program: ScalarProgram) -> _Kernel:
    pruned, used = program.pruned()
    return [var for number, var in enumerate(inputs) if number in used], pruned


def _made(node: Apply, readers: Iterable[_Reader], stored: tuple[int, ...]) -> list[tuple[Variable, Variable]]:
    pairs: list[tuple[Variable, Variable]] = []
    kept: dict[Variable, Variable] = {}
    if stored:
        inputs, program = _kernel(node, stored)
        outputs = OpenCLElemwise(FusedScalars.like(program)).make_node(*inputs).outputs
        kept = dict(zip([node.outputs[number] for number in stored], outputs, strict=True))
        pairs += kept.items()
    for reader in readers:
        inputs, program = _kernel_of_reader(node, reader, stored)
        made = reader.remade([kept.get(var, var) for var in inputs], program)
        pairs += zip(reader.node.outputs, made.outputs, strict=True)
    return pairs if all(old.type == new.type for old, new in pairs) else []
