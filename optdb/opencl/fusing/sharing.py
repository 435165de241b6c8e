"""Sharing of kernels that differ only in constants: one kernel is built, and takes the constants as arguments."""

from __future__ import annotations

from collections.abc import Hashable

from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api.graph import Apply, FunctionGraph, op_of
from optdb.opencl.fusing.groups import can_fuse
from optdb.opencl.ops.elemwise import OpenCLElemwise


def share_kernels(fgraph: FunctionGraph) -> None:
    """Pass constants as arguments if scalar programs in a graph differ only in their constants.

    Other programs keep their constants in the kernel's source, since each argument makes a launch slower.
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
