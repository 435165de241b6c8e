"""Where Theano calls for fusion: just behind the lift, in the modes that lift."""

from __future__ import annotations

from typing import Any

from optdb.host.databases import compile_db
from optdb.host.graph import FunctionGraph
from optdb.host.lifting import attach_validation, copy_trace, replace_all
from optdb.host.rewriters import Optimizer
from optdb.opencl.fusing.build import GroupBuilder
from optdb.opencl.fusing.groups import Groups
from optdb.opencl.fusing.reductions import of_what_is_computed

#: Behind the lift, and what is for devices alone; before the host's own fusion.
POSITION = 48.7


class OpenCLFusion(Optimizer):
    """Puts elementwise ops of the device that belong together into one kernel each.

    What is computed for a reduction alone goes into the reduction's kernel.
    """

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        attach_validation(fgraph)

    def apply(self, fgraph: FunctionGraph) -> Any:
        """Fuse the elementwise ops of a graph, with each other and into reductions."""
        groups = Groups(fgraph)
        for unit in groups:
            pairs = GroupBuilder(fgraph, unit, groups.in_order(unit)).replacements()
            for old, new in pairs:
                copy_trace(old, new)
            if pairs:
                replace_all(fgraph, pairs, reason=type(self).__name__)
        for node in fgraph.toposort():
            reduction = of_what_is_computed(fgraph, node)
            if reduction is not None:
                copy_trace(node.outputs[0], reduction)
                replace_all(fgraph, [(node.outputs[0], reduction)], reason=type(self).__name__)


compile_db().register("opencl_fusion", OpenCLFusion(), POSITION, "opencl", "fusion")
