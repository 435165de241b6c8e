"""Shares kernels that differ only in their numbers: one kernel, built once, takes the numbers as arguments."""

from __future__ import annotations

from collections.abc import Hashable

from optdb.codegen.scalars.program import Program
from optdb.host.api.graph import Apply, FunctionGraph
from optdb.opencl.fusing.groups import can_fuse


def share_kernels(fgraph: FunctionGraph) -> None:
    """Make the numbers of a graph's programs arguments, where programs differ only in them.

    Other programs keep their numbers in the kernel's text: each argument makes a launch slower.
    """
    by_kernel: dict[Hashable, list[Program]] = {}
    for node in fgraph.apply_nodes:
        if can_fuse(node) and isinstance(node.op.scalar_op, Program):
            by_kernel.setdefault(_kernel_key(node), []).append(node.op.scalar_op)
    for programs in by_kernel.values():
        if len(set(programs)) > 1:
            for program in programs:
                program.takes_arguments = True


def _kernel_key(node: Apply) -> Hashable:
    """Return what determines the kernel of an elementwise op, except its numbers."""
    program, _ = node.op.scalar_op.with_arguments()
    single = tuple([all(var.type.broadcastable) for var in node.inputs])
    kind = node.outputs[0].type
    return program, single, kind.ndim, kind.context_name
