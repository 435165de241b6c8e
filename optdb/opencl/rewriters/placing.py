"""Replaces chains that increment slices of zeros, such as gradients of slices, with one kernel that writes all slices.

If one elementwise op computes all parts, it writes them directly to the array; otherwise, one kernel copies the parts.
Zeros are written only outside the parts. A single increment of zeros becomes `OpenCLPad`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api import ops
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients, is_output, node_ancestors, op_of
from optdb.host.api.rewriters import GraphRewriter
from optdb.opencl.fusing.groups import Needs, can_fuse, is_for_one, needs_of, node_program, takes_arguments
from optdb.opencl.ops.elemwise import OpenCLPlacedElemwise
from optdb.opencl.ops.memory import OpenCLAlloc
from optdb.opencl.ops.parts import OpenCLIncSubtensor, OpenCLPad
from optdb.opencl.type import OpenCLArrayType
from optdb.opencl.variables import OpenCLConstant


@dataclass(frozen=True)
class _Part:
    """A slice that a node writes to an array, and the written value."""

    node: Apply
    value: Variable
    axis: int
    start: int
    stop: int


@dataclass(frozen=True)
class _Chain:
    """Nodes that increment an array of zeros: disjoint parts of equal length along one axis, in ascending order."""

    zeros: Apply
    parts: Sequence[_Part]

    @property
    def values(self) -> list[Variable]:
        return [part.value for part in self.parts]

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The start and stop of each part."""
        return tuple([(part.start, part.stop) for part in self.parts])


class PlacedParts(GraphRewriter):
    """Replaces chains of increments of zeros with ops that write all parts."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        needs = needs_of(fgraph)
        for node in reversed(fgraph.toposort()):
            # Skip nodes of a replaced chain, which are no longer in the graph.
            if node not in fgraph.apply_nodes or type(node.op) is not OpenCLIncSubtensor:
                continue
            chain = _chain(fgraph, node)
            if chain is None:
                pairs = _padded(node)
            else:
                pairs = _by_elementwise_op(fgraph, node, chain, needs) or _by_copies(node, chain)
            self.replace(fgraph, pairs)


def _chain(fgraph: FunctionGraph, last: Apply) -> _Chain | None:
    parts: list[_Part] = []
    node: Apply | None = last
    while node is not None and type(node.op) is OpenCLIncSubtensor:
        part = _part_of(node)
        if part is None or (node is not last and not is_for_one(fgraph, node.outputs[0])):
            return None
        parts.append(part)
        node = node.inputs[0].owner
    if len(parts) < 2 or node is None or not _is_zeros(node):
        return None
    parts.sort(key=lambda part: part.start)
    if len({(part.axis, part.stop - part.start) for part in parts}) > 1:
        return None
    return None if any(one.stop > other.start for one, other in itertools.pairwise(parts)) else _Chain(node, parts)


def _padded(node: Apply) -> list[tuple[Variable, Variable]]:
    """Return the replacement for an increment of zeros; an empty list for other nodes."""
    array, value, *index = node.inputs
    zeros = array.owner
    if zeros is None or not _is_zeros(zeros) or value.type.ndim != array.type.ndim:
        return []
    assert isinstance(array.type, OpenCLArrayType), array.type
    padded = OpenCLPad.of_part(array.type, op_of(node, OpenCLIncSubtensor).idx_list)(value, *zeros.inputs[1:], *index)
    return [(node.outputs[0], padded)]


def _part_of(node: Apply) -> _Part | None:
    """Return the part that a node writes; None unless the part is a slice along one axis with constant bounds."""
    array, value, *_ = node.inputs
    if value.type != array.type:
        return None
    entries = ops.get_idx_list([array, *node.inputs[2:]], op_of(node, OpenCLIncSubtensor).idx_list)
    cut = [(axis, entry) for axis, entry in enumerate(entries) if entry != slice(None)]
    if len(cut) != 1 or not isinstance(cut[0][1], slice):
        return None
    axis, entry = cut[0]
    start, stop, step = (_number(bound) for bound in (entry.start, entry.stop, entry.step))
    start, step = 0 if entry.start is None else start, 1 if entry.step is None else step
    if start is None or stop is None or step != 1 or not 0 <= start < stop:
        return None
    return _Part(node, value, axis, start, stop)


def _number(bound: Any) -> int | None:
    value = bound.data if isinstance(bound, Constant) else bound
    return None if value is None or isinstance(value, Variable) else int(value)


def _is_zeros(node: Apply) -> bool:
    if type(node.op) is not OpenCLAlloc:
        return False
    value = node.inputs[0]
    return isinstance(value, OpenCLConstant) and not value.on_host.any()


def _by_elementwise_op(
    fgraph: FunctionGraph, last: Apply, chain: _Chain, needs: Mapping[Apply, Needs]
) -> list[tuple[Variable, Variable]]:
    """Let the elementwise op that computes all parts write them; return pairs of old and new results, if any."""
    values, node = chain.values, chain.values[0].owner
    lengths = chain.zeros.inputs[1:]
    if node is None or not can_fuse(node) or any(value.owner is not node for value in values):
        return []
    if node in node_ancestors(lengths):
        return []
    in_chain = {part.node for part in chain.parts}
    others = [out for out in node.outputs if _is_wanted(fgraph, out, in_chain)]
    if others and needs.get(node) != needs.get(last):
        return []
    program = node_program(node)
    results = [program.results[node.outputs.index(out)] for out in (*values, *others)]
    together = ScalarProgram(program.dtypes, program.steps, tuple(results), program.takes_arguments)
    made = _made(together, chain, node.inputs)
    return [] if made is None else list(zip([last.outputs[0], *others], made.outputs, strict=True))


def _by_copies(last: Apply, chain: _Chain) -> list[tuple[Variable, Variable]]:
    values = list(dict.fromkeys(chain.values))
    dtypes = tuple([value.type.dtype for value in values])
    together = ScalarProgram(dtypes, (), tuple([values.index(value) for value in chain.values]))
    made = _made(together, chain, values)
    return [] if made is None else [(last.outputs[0], made.outputs[0])]


def _made(program: ScalarProgram, chain: _Chain, arrays: Sequence[Variable]) -> Apply | None:
    """Return a node that writes a chain's parts directly to one array; None if it would have too many arguments."""
    kind = chain.zeros.outputs[0].type
    assert isinstance(kind, OpenCLArrayType), kind
    if not takes_arguments(chain.zeros.outputs[0], len(arrays) + len(program.results), len(program.steps)):
        return None
    op = OpenCLPlacedElemwise(program, kind, chain.parts[0].axis, chain.places)
    return op.make_node(*chain.zeros.inputs[1:], *arrays)


def _is_wanted(fgraph: FunctionGraph, out: Variable, nodes: Collection[Apply]) -> bool:
    return any(is_output(client) or client not in nodes for client, _ in clients(fgraph, out))


# Run after fusion, but before any in-place rewrite.
compile_db().register("opencl_placing", PlacedParts(), 48.75, "opencl")
