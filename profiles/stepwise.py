"""The older way to lift, for comparison: one node at a time, as an equilibrium.

Each input of a graph is moved to the device and back at once. Lifters, run as node rewriters, then move one node after
another between two transfers; another rewriter removes transfers that undo each other. This is how Theano lifted before
its GraphToGPU (PR 4570).
"""

from __future__ import annotations

from typing import Any, Literal

from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, Variable
from theano.gof.opt import EquilibriumOptimizer, LocalOptimizer
from theano.gof.toolbox import ReplaceValidate

from optdb.lifters import Device, Lifter

USE_RATIO = 10.0
"""How often each rewriter may be applied, per node of the graph."""


class CutTransfers(LocalOptimizer):
    """Replace a transfer of a transferred variable by the original variable."""

    def __init__(self, device: Device):
        self.device = device

    def tracks(self) -> list[type]:
        """Both ends of a round trip."""
        return [self.device.from_host, self.device.to_host]

    def transform(self, node: Apply) -> list[Variable] | Literal[False]:
        """Remove a round trip to the other side."""
        [var] = node.inputs
        opposite = self.device.to_host if isinstance(node.op, self.device.from_host) else self.device.from_host
        if var.owner is None or not isinstance(var.owner.op, opposite):
            return False
        [source] = var.owner.inputs
        return [source] if source.type == node.outputs[0].type else False


def lift_stepwise(fgraph: FunctionGraph, lifters: list[Lifter], device: Device) -> None:
    """Lift a graph in place."""
    fgraph.attach_feature(ReplaceValidate())
    to_device: Any = device.from_host  # each device's op takes the name of a context
    for var in fgraph.inputs:
        if device.moves(var) and any(client != "output" for client, _ in var.clients):
            there = to_device(device.default_context())(var)
            fgraph.replace_validate(var, device.to_host()(there), reason="input to device")
    rewriters = [*lifters, CutTransfers(device)]
    EquilibriumOptimizer(rewriters, max_use_ratio=USE_RATIO).optimize(fgraph)
