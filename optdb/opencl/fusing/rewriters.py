"""The fusion rewriter, which Theano runs just after the lift in modes that lift."""

from __future__ import annotations

from optdb.host.api.databases import compile_db
from optdb.host.api.graph import FunctionGraph
from optdb.host.api.rewriters import GraphRewriter
from optdb.opencl.fusing.build import GroupBuilder
from optdb.opencl.fusing.groups import FusionGroups
from optdb.opencl.fusing.recomputing import recompute
from optdb.opencl.fusing.reductions import with_epilogue, with_prologue
from optdb.opencl.fusing.shapes import shapes_of_operands
from optdb.opencl.fusing.sharing import share_kernels
from optdb.opencl.fusing.siblings import families_of, fused
from optdb.opencl.fusing.splitting import split_wide_nodes

#: The rewriter's position: after the lift and the device-only rewriters, before the host's fusion.
POSITION = 48.7


class OpenCLFusion(GraphRewriter):
    """Fuses elementwise ops and reductions on the device into kernels.

    Ops that compute operands of only one reduction join its kernel, and so do elementwise ops on its result. Reductions
    of the same arrays are merged, and kernels recompute values that another kernel would otherwise store.
    """

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Fuse the elementwise ops of a graph with each other, and with reductions as prologues and epilogues."""
        self.replace(fgraph, list(shapes_of_operands(fgraph)))
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
        share_kernels(fgraph)


compile_db().register("opencl_fusion", OpenCLFusion(), POSITION, "opencl", "fusion")
