"""The fusion rewriter, which Theano runs just after the lift in modes that lift."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, Variable, op_of
from optdb.host.api.ops import Shape, Shape_i
from optdb.host.api.rewriters import GraphRewriter
from optdb.opencl.fusing.build import GroupBuilder
from optdb.opencl.fusing.groups import FusionGroups, can_fuse
from optdb.opencl.fusing.recomputing import recompute
from optdb.opencl.fusing.reductions import with_epilogue, with_prologue
from optdb.opencl.fusing.siblings import families_of, fused
from optdb.opencl.fusing.splitting import split_wide_nodes
from optdb.opencl.ops.elemwise import OpenCLElemwise

#: The rewriter's position: after the lift and the device-only rewriters, before the host's fusion.
POSITION = 48.7


class OpenCLFusion(GraphRewriter):
    """Fuses elementwise ops and reductions on the device into kernels.

    Ops that compute operands of only one reduction join its kernel, and so do elementwise ops on its result. Reductions
    of the same arrays are merged, and kernels recompute values that another kernel would otherwise store.
    """

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Fuse the elementwise ops of a graph with each other, and with reductions as prologues and epilogues."""
        self.replace(fgraph, list(_shapes_of_operands(fgraph)))
        groups = FusionGroups(fgraph, separate=split_wide_nodes(fgraph))
        for group in groups:
            self.replace(fgraph, GroupBuilder(fgraph, group, groups.in_order(group)).replacements())
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


def _shapes_of_operands(fgraph: FunctionGraph) -> Iterator[tuple[Variable, Variable]]:
    """Yield each shape of an elementwise result, and the shape of an operand that is not broadcast.

    A shape counts as a user of its array. If a result is otherwise only summed, this second user would make the kernel
    store the result before the sum. The mean of a result has such a user: it divides by the number of elements, which
    comes from the shape.
    """
    for node in fgraph.toposort():
        if isinstance(node.op, Shape | Shape_i):
            (var,) = node.inputs
            operand = _of_same_shape(var)
            if operand is not var:
                yield node.outputs[0], node.op(operand)


def _of_same_shape(var: Variable) -> Variable:
    """Return the first operand in a chain of elementwise ops that has the same shape as the result."""
    while var.owner is not None and can_fuse(var.owner):
        pattern = var.type.broadcastable
        operands = [x for x in var.owner.inputs if x.type.broadcastable == pattern]
        if not operands:
            return var
        var = operands[0]
    return var


def _share_kernels(fgraph: FunctionGraph) -> None:
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


compile_db().register("opencl_fusion", OpenCLFusion(), POSITION, "opencl", "fusion")
