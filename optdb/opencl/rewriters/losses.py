"""Computes a softmax's cross entropy together with its gradient if the softmax has no other user.

Training needs the loss and its gradient with respect to the softmax's input. The loss writes the softmax; the gradient
reads the softmax and writes an array of the same size. In a language model, these are the largest arrays. If the
gradient of the cost with respect to the loss is known in advance, as for a mean, one kernel writes the gradient
directly.
"""

from __future__ import annotations

from collections.abc import Mapping

from optdb.codegen.source import work_dtype
from optdb.host.api.databases import compile_db
from optdb.host.api.graph import Apply, FunctionGraph, clients, node_ancestors, owner_of
from optdb.host.api.rewriters import GraphRewriter
from optdb.opencl.branches import ALWAYS, Needs, needs_of
from optdb.opencl.ops.softmax import (
    OpenCLCrossentropyAndGradient,
    OpenCLCrossentropySoftmax1HotWithBiasDx,
    OpenCLCrossentropySoftmaxArgmax1HotWithBias,
)

#: After fusion, before any in-place rewrite.
POSITION = 48.73


class LossesWithGradients(GraphRewriter):
    """Lets cross entropies also compute their gradients."""

    def rewrite(self, fgraph: FunctionGraph) -> None:
        """Replace the cross entropies whose softmax only the gradient uses."""
        needs = needs_of(fgraph)
        for node in fgraph.toposort():
            if type(node.op) is not OpenCLCrossentropySoftmax1HotWithBiasDx or not _can_be_one(fgraph, node, needs):
                continue
            gradient, softmax, classes = node.inputs
            entropies = owner_of(softmax)
            matrix, bias, _ = entropies.inputs
            loss, dx, likeliest = OpenCLCrossentropyAndGradient()(matrix, bias, classes, gradient)
            pairs = [(entropies.outputs[0], loss), (node.outputs[0], dx), (entropies.outputs[2], likeliest)]
            if any(old.type != new.type for old, new in pairs):
                continue
            self.replace(fgraph, pairs)


def _can_be_one(fgraph: FunctionGraph, node: Apply, needs: Mapping[Apply, Needs]) -> bool:
    """Tell whether a gradient can be computed together with the cross entropies at the same precision."""
    gradient, softmax, classes = node.inputs
    entropies = softmax.owner
    if entropies is None or type(entropies.op) is not OpenCLCrossentropySoftmaxArgmax1HotWithBias:
        return False
    if softmax is not entropies.outputs[1] or entropies.inputs[2] is not classes:
        return False
    # The fused kernel would compute the gradient from a softmax that is not rounded to the result's dtype.
    if work_dtype(softmax.type.dtype) != softmax.type.dtype:
        return False
    if len({x.type.dtype for x in (gradient, softmax, *entropies.inputs[:2])}) > 1:
        return False
    is_for_one = [client for client, _ in clients(fgraph, softmax)] == [node]
    if not is_for_one or needs.get(node, ALWAYS) != needs.get(entropies, ALWAYS):
        return False
    return entropies not in node_ancestors([gradient])


compile_db().register("opencl_losses", LossesWithGradients(), POSITION, "opencl")
