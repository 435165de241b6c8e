"""Theano's passes that sort the whole graph and test each node, but find nothing in most graphs: they search first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from theano.scalar import Add, Mul
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet import nnet
from theano.tensor.opt import FusionOptimizer, local_add_mul_fusion

from optdb.host.api.graph import Apply, FunctionGraph, clients
from optdb.host.api.patching import Wrapper
from optdb.host.theano.speedups.bookkeeping import nodes_by_op

#: These passes replace only nodes of this op.
_CROSSENTROPY_PASSES = (
    nnet.crossentropy_to_crossentropy_with_softmax,
    nnet.crossentropy_to_crossentropy_with_softmax_with_bias,
)


def _where_crossentropy_is(apply: Callable[[FunctionGraph], None]) -> Callable[[FunctionGraph], None]:
    @functools.wraps(apply)
    def apply_to_crossentropy(fgraph: FunctionGraph) -> None:
        if type(nnet.crossentropy_categorical_1hot) in nodes_by_op(fgraph):
            apply(fgraph)

    return apply_to_crossentropy


def _where_terms_are(apply: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    @functools.wraps(apply)
    def fuse(self: FusionOptimizer, fgraph: FunctionGraph) -> tuple[Any, ...]:
        if self.optimizer is not local_add_mul_fusion or _has_sum_of_sums(fgraph):
            return apply(self, fgraph)
        return (self, 1, 0, 0, 0, 0, {}, 0)  # Theano's profile of a pass that changes nothing

    return fuse


def _has_sum_of_sums(fgraph: FunctionGraph) -> bool:
    """Return whether a sum has a term that is a sum without other users, or a product with such a factor.

    If there is none at the beginning, nothing is fused, and none is created.
    """
    for cls, nodes_of in nodes_by_op(fgraph).items():
        if not issubclass(cls, Elemwise):
            continue
        for nodes in nodes_of.values():
            op = nodes[0].op
            assert isinstance(op, Elemwise)
            scalar_op = op.scalar_op
            if isinstance(scalar_op, (Add, Mul)) and any(_takes(node, type(scalar_op)) for node in nodes):
                return True
    return False


def _takes(node: Apply, kind: type) -> bool:
    return any(
        var.owner is not None
        and isinstance(var.owner.op, Elemwise)
        and isinstance(var.owner.op.scalar_op, kind)
        and len(clients(node.fgraph, var)) == 1
        for var in node.inputs
    )


def patches() -> list[Wrapper]:
    """Return the patches of the passes."""
    return [
        Wrapper(FusionOptimizer, "apply", _where_terms_are, "a graph without sums of sums is not sorted"),
        *(
            Wrapper(rewriter, "apply", _where_crossentropy_is, "a graph without the op is not sorted")
            for rewriter in _CROSSENTROPY_PASSES
        ),
    ]
