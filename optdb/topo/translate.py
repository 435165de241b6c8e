"""Replaces the members of Theano's queried optimizers with the engine's rewriters.

:func:`translate` takes the result of a query, so it also replaces rewriters that were registered after optdb was
imported.
"""

from __future__ import annotations

from typing import Any

from optdb.host.api.destroy import InplaceElemwiseOptimizer
from optdb.host.api.fusion import FusionOptimizer, local_elemwise_fusion
from optdb.host.api.gemm import GemmOptimizer
from optdb.host.api.graph import FunctionGraph
from optdb.host.api.rewriters import EquilibriumOptimizer, LocalOptGroup, MergeOptimizer, SeqOptimizer, TopoOptimizer
from optdb.host.api.session import optimizing
from optdb.topo.fusion import GroupFusion
from optdb.topo.gemm import WholeSumGemm
from optdb.topo.inplace import InplaceElemwise
from optdb.topo.merge import IndexedMergeOptimizer
from optdb.topo.onepass import OnePass, is_idle
from optdb.topo.rewriter import TopoRewriter


class TopoSequence(SeqOptimizer):
    """Theano's sequence of phases, which is run in one `optimizing` session."""

    @classmethod
    def of(cls, stock: SeqOptimizer) -> SeqOptimizer:
        """Convert `stock` to a TopoSequence, unless it is an instance of a subclass of SeqOptimizer."""
        if type(stock) is SeqOptimizer:
            stock.__class__ = cls
        return stock

    def is_idle(self, fgraph: FunctionGraph) -> bool:
        """Return whether all members are known to leave `fgraph` unchanged."""
        return all(is_idle(member, fgraph) for member in self)

    def optimize(self, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
        with optimizing():
            return super().optimize(fgraph, *args, **kwargs)


def translate(optimizer: Any) -> Any:
    """Return `optimizer`, or the engine's rewriter that replaces it; change the members of a sequence in place."""
    if isinstance(optimizer, (TopoRewriter, TopoSequence)):
        return optimizer
    if isinstance(optimizer, SeqOptimizer):
        optimizer[:] = [translate(member) for member in optimizer]
        return TopoSequence.of(optimizer)
    if type(optimizer) is EquilibriumOptimizer:
        rewriter = TopoRewriter.from_equilibrium(optimizer)
        # A group inside an equilibrium needs only one pass, because the equilibrium repeats it.
        rewriter.global_optimizers = [
            member if _is_fixed_point_group(member) else translate(member) for member in rewriter.global_optimizers
        ]
        return _with_names(rewriter, optimizer)
    if _is_fixed_point_group(optimizer):
        return _with_names(TopoRewriter.from_topo(optimizer), optimizer)
    if type(optimizer) is TopoOptimizer:
        return _with_names(OnePass.of(optimizer), optimizer)
    if type(optimizer) is MergeOptimizer:
        return _with_names(IndexedMergeOptimizer(), optimizer)
    if type(optimizer) is InplaceElemwiseOptimizer:
        return _with_names(InplaceElemwise(optimizer.op), optimizer)
    if type(optimizer) is GemmOptimizer:
        return _with_names(WholeSumGemm(), optimizer)
    if type(optimizer) is FusionOptimizer and optimizer.optimizer is local_elemwise_fusion:
        return _with_names(GroupFusion(), optimizer)
    return optimizer


def _is_fixed_point_group(optimizer: Any) -> bool:
    """Return whether a TopoOptimizer's group applies all its rewriters repeatedly."""
    return (
        type(optimizer) is TopoOptimizer
        and isinstance(optimizer.local_opt, LocalOptGroup)
        and optimizer.local_opt.apply_all_opts
    )


def _with_names(new: Any, old: Any) -> Any:
    for attribute in ("name", "__name__"):
        if hasattr(old, attribute):
            setattr(new, attribute, getattr(old, attribute))
    return new
