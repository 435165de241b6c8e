"""Lets kernels that differ in numbers alone be one: it takes the numbers as arguments, and is built once."""

from __future__ import annotations

from collections.abc import Hashable

from optdb.codegen.scalars.program import Program
from optdb.host.api.graph import Apply, FunctionGraph
from optdb.opencl.fusing.groups import can_fuse


def share_kernels(fgraph: FunctionGraph) -> None:
    """Make arguments of the numbers of those programs of a graph that are alike but for these.

    The numbers of others stay in their text: a launch takes longer the more arguments there are.
    """
    alike: dict[Hashable, list[Program]] = {}
    for node in fgraph.apply_nodes:
        if can_fuse(node) and isinstance(node.op.scalar_op, Program):
            alike.setdefault(_kernel_key(node), []).append(node.op.scalar_op)
    for programs in alike.values():
        if len(set(programs)) > 1:
            for program in programs:
                program.takes_arguments = True


def _kernel_key(node: Apply) -> Hashable:
    """Return what determines the kernel of an elementwise op, apart from numbers."""
    program, _ = node.op.scalar_op.with_arguments()
    single = tuple([all(var.type.broadcastable) for var in node.inputs])
    kind = node.outputs[0].type
    return program, single, kind.ndim, kind.context_name
